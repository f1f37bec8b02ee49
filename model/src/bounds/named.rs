//! The bounds that are explored whole.

use super::{Bounds, NOTHING};
use crate::properties::Promise;
use crate::state::Budget;

/// The bounds that the tests explore, every state of each.
#[must_use]
pub fn narrow() -> Vec<Bounds> {
    let mut all = orderly();
    all.extend(deaths());
    all.extend(people());
    all.extend(clocks_and_outages());
    all.extend(leased_rows());
    all
}

/// The same faults more often, or for longer: minutes and gigabytes each.
#[must_use]
pub fn wide() -> Vec<Bounds> {
    let n = NOTHING;
    vec![
        Bounds {
            index_lags: true,
            ..Bounds::named("an index that lags", 0, Budget { shutdowns: 1, births: 1, stops: 1, starts: 1, ..n })
        },
        Bounds { owned_at_first: false, ..Bounds::named("late requests", 3, Budget { late_requests: 2, ..n }) },
        Bounds {
            registrations_are_late: true,
            ..Bounds::named("late registrations", 4, Budget { kills: 1, births: 1, late_requests: 1, doubled: 1, ..n })
        },
        Bounds::named("made again", 2, Budget { deletes: 1, creates: 1, late_requests: 1, ..n })
            .except(&[Promise::OneSocket]),
        Bounds::named("suspension", 5, Budget { pauses: 1, late_requests: 1, ..n }),
        Bounds::named(
            "stop, start, change",
            1,
            Budget { stops: 1, starts: 1, changes: 1, doubled: 1, late_requests: 1, ..n },
        ),
    ]
}

fn orderly() -> Vec<Bounds> {
    let n = NOTHING;
    vec![
        Bounds { owned_at_first: false, ..Bounds::named("late requests", 2, Budget { late_requests: 2, ..n }) },
        Bounds {
            index_lags: true,
            ..Bounds::named("shutdown", 2, Budget { shutdowns: 1, late_requests: 1, lost_claims: 1, ..n })
        },
        Bounds {
            index_lags: true,
            ..Bounds::named("removed sessions", 1, Budget { shutdowns: 1, late_requests: 1, removed_sessions: 1, ..n })
                .except(&[Promise::EventsRepair])
        },
        Bounds { hold: true, ..Bounds::named("one worker cut off, sockets held", 6, n) },
        Bounds {
            connections: 2,
            most_marks: 1,
            ..Bounds::named("two connections", 0, Budget { stops: 2, changes: 1, late_requests: 1, ..n })
        },
    ]
}

fn deaths() -> Vec<Bounds> {
    let n = NOTHING;
    vec![
        Bounds { task_reports: true, ..Bounds::named("death", 4, Budget { kills: 1, births: 1, lost_claims: 1, ..n }) },
        Bounds::named("death and a late request", 3, Budget { kills: 1, births: 1, late_requests: 1, ..n }),
        Bounds::named("suspension", 4, Budget { pauses: 1, late_requests: 1, ..n }),
        Bounds::named("two runs of reconcile", 4, Budget { kills: 1, slow_looks: 2, ..n }),
        Bounds {
            registrations_are_late: true,
            ..Bounds::named("late registrations", 2, Budget { kills: 1, births: 1, late_requests: 1, doubled: 1, ..n })
        },
        Bounds::named("a wrong task report", 2, Budget { wrong_task_reports: 1, late_requests: 1, ..n })
            .except(&[Promise::OneSocket]),
        Bounds {
            workers: 1,
            hold: true,
            ..Bounds::named(
                "a wrong report of a fleet of one",
                3,
                Budget { wrong_task_reports: 1, late_requests: 1, ..n },
            )
        },
        Bounds {
            task_reports: true,
            fleet_view: true,
            ..Bounds::named("the fleet as ECS sees it", 5, Budget { kills: 2, ..n })
        },
    ]
}

fn people() -> Vec<Bounds> {
    let n = NOTHING;
    vec![
        Bounds::named("stop, start, change", 1, Budget { stops: 1, starts: 1, changes: 1, late_requests: 1, ..n }),
        Bounds {
            index_lags: true,
            ..Bounds::named("everything twice", 0, Budget { stops: 1, starts: 1, doubled: 2, ..n })
        },
        Bounds {
            written_by_hand: true,
            owned_at_first: false,
            ..Bounds::named("lost events", 2, Budget { stops: 1, lost_events: 2, lost_claims: 1, sweeps: 2, ..n })
                .except(&[Promise::EventsRepair])
        },
        Bounds {
            prompt: true,
            ..Bounds::named("overwritten", 6, Budget { overwrites: 1, lost_marks: 1, late_requests: 1, ..n })
        },
        Bounds {
            prompt: true,
            ..Bounds::named("overwritten, event lost", 7, Budget { overwrites: 1, lost_events: 1, sweeps: 2, ..n })
                .except(&[Promise::EventsRepair])
        },
        Bounds::named("made again", 1, Budget { deletes: 1, creates: 1, late_requests: 1, ..n })
            .except(&[Promise::OneSocket]),
        Bounds {
            clock_error_ms: [10, 0],
            ..Bounds::named("made again, clocks apart", 0, Budget { deletes: 1, creates: 1, late_requests: 1, ..n })
                .except(&[Promise::OneSocket, Promise::EpochsRise])
                .and(Promise::SeriesAreNotShared)
        },
    ]
}

fn clocks_and_outages() -> Vec<Bounds> {
    let outage = Budget { outages: 1, ..NOTHING };
    vec![
        Bounds {
            clock_error_ms: [-3_000, 3_000],
            ..Bounds::named("clocks within the allowance", 5, Budget { kills: 1, births: 1, ..NOTHING })
        },
        Bounds { prompt: true, hold: true, ..Bounds::named("outage, sockets held", 9, outage) }
            .and(Promise::NobodyIsFencedAlive),
        Bounds {
            prompt: true,
            hold: true,
            outage_of_workers_only: true,
            outage_steps: 4,
            ..Bounds::named("outage for workers only", 9, outage)
        }
        .and(Promise::NobodyIsFencedAlive),
        Bounds { prompt: true, ..Bounds::named("outage, sockets closed", 9, Budget { kills: 1, ..outage }) }
            .and(Promise::NobodyIsFencedAlive),
    ]
}

/// Rows that are leased by themselves.
fn leased_rows() -> Vec<Bounds> {
    let n = NOTHING;
    let late = Budget { late_requests: 1, ..n };
    let all = vec![
        Bounds {
            owned_at_first: false,
            ..Bounds::named("leased rows, late requests", 1, Budget { late_requests: 2, ..n })
        },
        Bounds::named("leased rows, a lease runs out", 4, late),
        Bounds::named("leased rows, suspension", 4, Budget { pauses: 1, ..n }),
        Bounds::named("leased rows, death", 3, Budget { kills: 1, births: 1, ..late }),
        Bounds::named("leased rows, shutdown", 1, Budget { shutdowns: 1, lost_claims: 1, ..late }),
        Bounds::named("leased rows, stop and start", 1, Budget { stops: 1, starts: 1, ..late }),
        Bounds::named("leased rows, change", 1, Budget { changes: 1, lost_events: 1, ..late }),
        Bounds {
            clock_error_ms: [-3_000, 3_000],
            ..Bounds::named("leased rows, clocks within the allowance", 5, Budget { kills: 1, ..n })
        },
        Bounds { prompt: true, hold: true, ..Bounds::named("leased rows, outage", 8, Budget { outages: 1, ..n }) }
            .and(Promise::NobodyIsFencedAlive),
    ];
    all.into_iter().map(Bounds::of_rows).collect()
}
