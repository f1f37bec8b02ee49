//! Every state within each of the narrow bounds is visited, and none breaks a promise.
//!
//! The wide ones take minutes: `cargo run --release -p leasehold-model --example explore -- --bounds wide`.

use leasehold_model::bounds::narrow;
use leasehold_model::check::check;
use leasehold_model::protocol::Protocol;

const EXPLORED: [&str; 33] = [
    "late requests",
    "shutdown",
    "removed sessions",
    "one worker cut off, sockets held",
    "two connections",
    "death",
    "death and a late request",
    "suspension",
    "two runs of reconcile",
    "late registrations",
    "a wrong task report",
    "a wrong report of a fleet of one",
    "the fleet as ECS sees it",
    "stop, start, change",
    "everything twice",
    "lost events",
    "overwritten",
    "overwritten, event lost",
    "made again",
    "made again, clocks apart",
    "clocks within the allowance",
    "outage, sockets held",
    "outage for workers only",
    "outage, sockets closed",
    "leased rows, late requests",
    "leased rows, a lease runs out",
    "leased rows, suspension",
    "leased rows, death",
    "leased rows, shutdown",
    "leased rows, stop and start",
    "leased rows, change",
    "leased rows, clocks within the allowance",
    "leased rows, outage",
];

fn breaks_nothing(name: &str) {
    let bounds = narrow().into_iter().find(|bounds| bounds.name == name).expect("bounds of that name");
    let checked = check(Protocol::new(bounds), 1);
    println!("{name}: {} states, {} deep", checked.states, checked.depth);
    assert_eq!(checked.violation, None);
}

#[test]
fn all_narrow_bounds_are_explored_here() {
    let names: Vec<&str> = narrow().iter().map(|bounds| bounds.name).collect();
    assert_eq!(names, EXPLORED);
}

#[test]
fn requests_that_land_late_or_never_break_nothing() {
    breaks_nothing("late requests");
}

#[test]
fn a_shutdown_with_a_late_request_and_a_lost_claim_breaks_nothing() {
    breaks_nothing("shutdown");
}

#[test]
fn a_session_row_that_is_removed_while_a_request_is_under_way_breaks_nothing() {
    breaks_nothing("removed sessions");
}

#[test]
fn a_worker_that_is_cut_off_and_holds_its_sockets_serves_nothing_twice() {
    breaks_nothing("one worker cut off, sockets held");
}

#[test]
fn marks_that_do_not_fit_and_two_connections_break_nothing() {
    breaks_nothing("two connections");
}

#[test]
fn a_death_with_a_task_report_and_a_lost_claim_breaks_nothing() {
    breaks_nothing("death");
}

#[test]
fn a_death_with_a_late_request_breaks_nothing() {
    breaks_nothing("death and a late request");
}

#[test]
fn a_suspension_past_the_deadline_breaks_nothing() {
    breaks_nothing("suspension");
}

#[test]
fn two_runs_of_reconcile_side_by_side_that_may_die_break_nothing() {
    breaks_nothing("two runs of reconcile");
}

#[test]
fn a_registration_that_lands_late_and_twice_breaks_nothing() {
    breaks_nothing("late registrations");
}

#[test]
fn a_wrong_task_report_breaks_nothing_but_makes_two_sockets_for_a_while() {
    breaks_nothing("a wrong task report");
}

#[test]
fn a_wrong_report_of_a_fleet_of_one_that_holds_its_sockets_breaks_nothing() {
    breaks_nothing("a wrong report of a fleet of one");
}

#[test]
fn a_fleet_that_is_dead_whole_is_found_with_the_view_of_ecs() {
    breaks_nothing("the fleet as ECS sees it");
}

#[test]
fn stop_start_and_a_change_of_the_spec_break_nothing() {
    breaks_nothing("stop, start, change");
}

#[test]
fn claims_events_and_requests_that_come_twice_break_nothing() {
    breaks_nothing("everything twice");
}

#[test]
fn a_row_whose_events_and_claims_are_lost_is_found() {
    breaks_nothing("lost events");
}

#[test]
fn a_row_that_is_overwritten_while_events_flow_has_one_socket() {
    breaks_nothing("overwritten");
}

#[test]
fn a_row_that_is_overwritten_unseen_has_one_socket() {
    breaks_nothing("overwritten, event lost");
}

#[test]
fn a_row_that_is_deleted_and_made_again_never_repeats_owner_and_epoch() {
    breaks_nothing("made again");
}

#[test]
fn a_row_that_is_made_again_while_clocks_differ_never_shares_a_series() {
    breaks_nothing("made again, clocks apart");
}

#[test]
fn clocks_that_differ_by_the_allowance_break_nothing() {
    breaks_nothing("clocks within the allowance");
}

#[test]
fn an_outage_fences_nobody_while_sockets_are_held() {
    breaks_nothing("outage, sockets held");
}

#[test]
fn an_outage_for_workers_alone_fences_nobody() {
    breaks_nothing("outage for workers only");
}

#[test]
fn an_outage_fences_nobody_while_sockets_are_closed_and_a_worker_dies() {
    breaks_nothing("outage, sockets closed");
}

#[test]
fn leased_rows_with_requests_that_land_late_or_never_break_nothing() {
    breaks_nothing("leased rows, late requests");
}

#[test]
fn a_leased_row_that_is_not_renewed_in_time_is_taken_and_nothing_breaks() {
    breaks_nothing("leased rows, a lease runs out");
}

#[test]
fn leased_rows_of_a_suspended_worker_break_nothing() {
    breaks_nothing("leased rows, suspension");
}

#[test]
fn leased_rows_of_a_worker_that_dies_break_nothing() {
    breaks_nothing("leased rows, death");
}

#[test]
fn leased_rows_that_are_released_at_a_shutdown_break_nothing() {
    breaks_nothing("leased rows, shutdown");
}

#[test]
fn leased_rows_that_are_stopped_and_started_break_nothing() {
    breaks_nothing("leased rows, stop and start");
}

#[test]
fn a_leased_row_hears_of_its_changed_spec_though_the_event_is_lost() {
    breaks_nothing("leased rows, change");
}

#[test]
fn leased_rows_and_clocks_that_differ_by_the_allowance_break_nothing() {
    breaks_nothing("leased rows, clocks within the allowance");
}

#[test]
fn leased_rows_and_an_outage_with_sockets_held_break_nothing() {
    breaks_nothing("leased rows, outage");
}
