//! Each repair is taken out once. The checker must find what it is for, and nothing within the same bounds once it is back.

use leasehold_model::bounds::{Bounds, NOTHING};
use leasehold_model::check::check;
use leasehold_model::properties::{Promise, property};
use leasehold_model::protocol::Protocol;
use leasehold_model::repairs::Repairs;
use leasehold_model::state::Budget;

/// Within these bounds `promise` holds, and without the repair it does not.
fn is_needed(bounds: Bounds, promise: Promise, take_out: impl FnOnce(&mut Repairs)) {
    let bounds = bounds.only(promise);
    let broken = check(Protocol::new(bounds.clone()).without(take_out), 1);
    let (found, steps) = broken.violation.expect("the checker finds a violation");
    println!("{}: {found:?} is broken after {} states, by", bounds.name, broken.states);
    for step in &steps {
        println!("    {step}");
    }
    assert_eq!(found, property(promise).name);
    let repaired = check(Protocol::new(bounds), 1);
    println!("with the repair: {} states", repaired.states);
    assert_eq!(repaired.violation, None);
}

/// Within these bounds `promise` does not hold: they are beyond what is promised.
fn is_a_limit(bounds: Bounds, promise: Promise) {
    let found = check(Protocol::new(bounds.only(promise)), 1);
    let (name, steps) = found.violation.expect("the checker finds a violation");
    println!("{name:?} is broken after {} states, by", found.states);
    for step in &steps {
        println!("    {step}");
    }
}

#[test]
fn clocks_further_apart_than_the_allowance_make_two_sockets() {
    // The first worker's estimate is late by the allowance, by what lies between its deadline and the end of its lease, and by a step, since
    // looks come in whole steps.
    let bounds = Bounds { clock_error_ms: [-24_000, 0], ..Bounds::named("clocks beyond the allowance", 3, NOTHING) };
    is_a_limit(bounds, Promise::OneSocket);
}

#[test]
fn an_outage_for_workers_that_no_look_falls_into_fences_one_of_them() {
    let bounds =
        Bounds { prompt: true, hold: true, outage_of_workers_only: true, ..Bounds::named("short outage", 5, NOTHING) };
    is_a_limit(bounds.with(Budget { outages: 1, ..NOTHING }), Promise::NobodyIsFencedAlive);
}

#[test]
fn without_the_fence_two_workers_serve_one_connection() {
    let bounds = Bounds { hold: true, ..Bounds::named("hold", 4, NOTHING) };
    is_needed(bounds, Promise::OneSocket, |repairs| repairs.rules.fence = false);
}

#[test]
fn without_owner_and_epoch_in_conditions_a_late_write_of_a_former_owner_is_accepted() {
    let bounds = Bounds::named("late write", 0, Budget { late_requests: 1, shutdowns: 1, ..NOTHING });
    is_needed(bounds, Promise::OneWriter, |repairs| repairs.rules.epoch_conditions = false);
}

#[test]
fn without_its_own_deadline_a_worker_that_is_cut_off_keeps_its_socket() {
    is_needed(Bounds::named("cut off", 4, NOTHING), Promise::OneSocket, |repairs| repairs.rules.local_deadline = false);
}

#[test]
fn without_a_rising_heartbeat_number_a_late_renewal_makes_two_sockets() {
    let bounds = Bounds::named("late renewal", 4, Budget { late_requests: 1, ..NOTHING });
    is_needed(bounds, Promise::OneSocket, |repairs| repairs.rising_heartbeat = false);
}

#[test]
fn a_renewal_that_needs_no_row_brings_a_session_back_that_was_over() {
    let budget = Budget { late_requests: 1, shutdowns: 1, removed_sessions: 1, ..NOTHING };
    is_needed(Bounds::named("late renewal, removed row", 0, budget), Promise::OverStaysOver, |repairs| {
        repairs.renewal_needs_row = false;
    });
}

#[test]
fn a_registration_that_replaces_a_row_brings_a_session_back_that_was_over() {
    let budget = Budget { late_requests: 1, doubled: 1, kills: 1, births: 1, shutdowns: 1, ..NOTHING };
    let bounds = Bounds { registrations_are_late: true, ..Bounds::named("doubled registration", 0, budget) };
    is_needed(bounds, Promise::OverStaysOver, |repairs| repairs.registration_needs_absence = false);
}

#[test]
fn if_an_owner_without_a_session_row_were_not_over_a_late_acquire_would_be_stuck() {
    let budget = Budget { late_requests: 1, shutdowns: 1, removed_sessions: 1, ..NOTHING };
    let bounds = Bounds { owned_at_first: false, ..Bounds::named("late acquire, removed row", 0, budget) };
    is_needed(bounds, Promise::EverythingRepairs, |repairs| repairs.missing_owner_is_over = false);
}

#[test]
fn without_a_second_look_a_run_that_dies_or_a_claim_that_is_lost_leaves_a_row_stuck() {
    let budget = Budget { kills: 1, lost_claims: 1, slow_looks: 1, ..NOTHING };
    let bounds = Bounds { task_reports: true, ..Bounds::named("lost claim", 1, budget) };
    is_needed(bounds, Promise::IndexRepairs, |repairs| repairs.second_look = false);
}

#[test]
fn without_the_sweep_a_row_whose_event_is_lost_is_never_found() {
    let budget = Budget { lost_events: 1, ..NOTHING };
    let bounds = Bounds { written_by_hand: true, owned_at_first: false, ..Bounds::named("lost event", 1, budget) };
    is_needed(bounds, Promise::EverythingRepairs, |repairs| repairs.sweep = false);
}

#[test]
fn without_time_in_epochs_a_row_that_is_made_again_has_its_old_ones_again() {
    let bounds = Bounds::named("made again", 0, Budget { deletes: 1, creates: 1, ..NOTHING });
    is_needed(bounds, Promise::PairsNeverRepeat, |repairs| repairs.epochs_follow_time = false);
}

#[test]
fn without_a_version_a_late_removal_takes_a_new_mark_away() {
    let bounds = Bounds::named("late removal", 0, Budget { late_requests: 1, changes: 2, ..NOTHING });
    is_needed(bounds, Promise::EventsRepair, |repairs| repairs.removal_needs_version = false);
}

#[test]
fn if_versions_restarted_a_late_removal_would_take_a_new_mark_away() {
    let bounds = Bounds::named("late removal", 1, Budget { late_requests: 1, changes: 2, ..NOTHING });
    is_needed(bounds, Promise::EventsRepair, |repairs| repairs.version_goes_on = false);
}

#[test]
fn without_acquiring_anew_a_late_release_frees_a_connection_that_is_open_again() {
    let bounds = Bounds::named("late release", 0, Budget { late_requests: 1, stops: 1, starts: 1, ..NOTHING });
    is_needed(bounds, Promise::OneSocket, |repairs| repairs.reacquire = false);
}

#[test]
fn with_two_requests_at_a_time_a_connection_is_open_and_free() {
    let budget = Budget { late_requests: 1, stops: 1, starts: 1, ..NOTHING };
    let bounds = Bounds { owned_at_first: false, ..Bounds::named("two requests", 0, budget) };
    is_needed(bounds, Promise::OneSocket, |repairs| repairs.one_request_at_a_time = false);
}

#[test]
fn a_lease_that_is_released_before_its_socket_is_closed_makes_two_sockets() {
    let bounds = Bounds::named("stop and start", 0, Budget { stops: 1, starts: 1, ..NOTHING });
    is_needed(bounds, Promise::OneSocket, |repairs| repairs.close_before_release = false);
}

#[test]
fn a_session_that_ends_before_its_sockets_are_closed_makes_two_sockets() {
    let bounds = Bounds::named("shutdown", 0, Budget { shutdowns: 1, ..NOTHING });
    is_needed(bounds, Promise::OneSocket, |repairs| repairs.close_before_end = false);
}

#[test]
fn without_the_silence_rule_an_outage_fences_who_renews_last() {
    let budget = Budget { outages: 1, ..NOTHING };
    let bounds = Bounds { prompt: true, hold: true, ..Bounds::named("outage", 7, budget) };
    is_needed(bounds, Promise::NobodyIsFencedAlive, |repairs| repairs.silence_rule = false);
}

#[test]
fn without_the_silence_rule_an_outage_fences_a_fleet_of_one() {
    let budget = Budget { outages: 1, ..NOTHING };
    let bounds = Bounds { prompt: true, hold: true, workers: 1, ..Bounds::named("outage, one worker", 7, budget) };
    is_needed(bounds, Promise::NobodyIsFencedAlive, |repairs| repairs.silence_rule = false);
}

#[test]
fn an_overwritten_row_whose_old_owner_does_not_hear_first_makes_two_sockets() {
    let bounds = Bounds { prompt: true, ..Bounds::named("overwritten", 4, Budget { overwrites: 1, ..NOTHING }) };
    is_needed(bounds, Promise::OneSocket, |repairs| repairs.old_owner_hears_first = false);
}

#[test]
fn a_swept_row_that_is_not_stamped_ahead_makes_two_sockets() {
    let budget = Budget { overwrites: 1, lost_events: 1, sweeps: 1, ..NOTHING };
    let bounds = Bounds { prompt: true, ..Bounds::named("overwritten, event lost", 6, budget) };
    is_needed(bounds, Promise::OneSocket, |repairs| repairs.sweep_stamps_ahead = false);
}

#[test]
fn if_the_sweep_marked_no_live_owners_an_acquire_without_an_answer_would_be_stuck_while_the_index_is_blind() {
    let bounds =
        Bounds { owned_at_first: false, ..Bounds::named("late acquire", 1, Budget { late_requests: 1, ..NOTHING }) };
    is_needed(bounds, Promise::SweepRepairs, |repairs| repairs.sweep_marks_live_owners = false);
}

#[test]
fn without_the_session_in_its_name_a_series_is_shared_while_clocks_differ() {
    let budget = Budget { deletes: 1, creates: 1, shutdowns: 1, ..NOTHING };
    let bounds = Bounds { clock_error_ms: [10, 0], ..Bounds::named("made again, clocks apart", 0, budget) };
    is_needed(bounds, Promise::SeriesAreNotShared, |repairs| repairs.series_names_session = false);
}

#[test]
fn a_reap_that_does_not_check_the_owner_frees_a_connection_that_is_open() {
    let budget = Budget { late_requests: 1, kills: 1, births: 1, stops: 2, starts: 2, ..NOTHING };
    let bounds = Bounds { task_reports: true, ..Bounds::named("late reap", 0, budget) };
    is_needed(bounds, Promise::OneSocket, |repairs| repairs.reap_checks_owner = false);
}

#[test]
fn without_a_rising_expiry_a_late_renewal_of_a_leased_row_makes_two_sockets() {
    let bounds = Bounds::named("late renewal of a row", 4, Budget { late_requests: 1, ..NOTHING });
    is_needed(bounds.of_rows(), Promise::OneSocket, |repairs| repairs.rising_expiry = false);
}

#[test]
fn if_taking_a_leased_row_did_not_require_that_it_is_past_still_it_would_be_taken_from_an_owner_who_has_renewed() {
    let bounds = Bounds { hold: true, ..Bounds::named("late acquire", 4, Budget { late_requests: 1, ..NOTHING }) };
    is_needed(bounds.of_rows(), Promise::OneSocket, |repairs| repairs.taking_needs_expiry = false);
}

#[test]
fn clocks_further_apart_than_the_allowance_make_two_sockets_of_a_leased_row() {
    let bounds = Bounds { clock_error_ms: [-24_000, 0], ..Bounds::named("clocks beyond the allowance", 3, NOTHING) };
    is_a_limit(bounds.of_rows(), Promise::OneSocket);
}
