//! The repairs that the model checker asked for. All are in; each can be taken out, to see that the checker finds what it is for.

use leasehold::decide::timing::Rules;

/// The repairs. Those that the product's decisions know as [`Rules`] go through these; the others are taken out in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repairs {
    /// The fence, conditions on owner and epoch, the worker's own deadline.
    pub rules: Rules,
    /// A renewal must carry a higher heartbeat number than the stored one.
    pub rising_heartbeat: bool,
    /// A renewal of a row must carry a later expiry than the stored one.
    pub rising_expiry: bool,
    /// Who takes a row because its owner's lease of it is past requires that it still is.
    pub taking_needs_expiry: bool,
    /// A row is freed only from the owner that was read.
    pub reap_checks_owner: bool,
    /// A renewal must find its session's row.
    pub renewal_needs_row: bool,
    /// A registration must not find its session's row.
    pub registration_needs_absence: bool,
    /// An owner without a session row is over.
    pub missing_owner_is_over: bool,
    /// Every run of reconcile looks at what over sessions own, not only the run that fences.
    pub second_look: bool,
    /// The whole table is swept.
    pub sweep: bool,
    /// Epochs are never below lease time.
    pub epochs_follow_time: bool,
    /// Marks are removed only if their version is still the one that was read.
    pub removal_needs_version: bool,
    /// The version of marks goes on after they were removed.
    pub version_goes_on: bool,
    /// A row that names me but is not held is acquired anew before it is opened.
    pub reacquire: bool,
    /// One request at a time for a connection.
    pub one_request_at_a_time: bool,
    /// A socket is closed before its lease is released.
    pub close_before_release: bool,
    /// All sockets are closed before a session ends.
    pub close_before_end: bool,
    /// A fleet that is silent whole is not fenced, and one that comes back is suspected first.
    pub silence_rule: bool,
    /// The old owner of an overwritten row is marked, and its row is stamped ahead.
    pub old_owner_hears_first: bool,
    /// The sweep stamps rows further ahead, as it cannot know who held them.
    pub sweep_stamps_ahead: bool,
    /// The sweep marks live owners that do not know of their rows.
    pub sweep_marks_live_owners: bool,
    /// The name of a series has its owner's session in it.
    pub series_names_session: bool,
}

impl Default for Repairs {
    fn default() -> Self {
        Self {
            rules: Rules::default(),
            rising_heartbeat: true,
            rising_expiry: true,
            taking_needs_expiry: true,
            reap_checks_owner: true,
            renewal_needs_row: true,
            registration_needs_absence: true,
            missing_owner_is_over: true,
            second_look: true,
            sweep: true,
            epochs_follow_time: true,
            removal_needs_version: true,
            version_goes_on: true,
            reacquire: true,
            one_request_at_a_time: true,
            close_before_release: true,
            close_before_end: true,
            silence_rule: true,
            old_owner_hears_first: true,
            sweep_stamps_ahead: true,
            sweep_marks_live_owners: true,
            series_names_session: true,
        }
    }
}
