//! What must hold in every state.

use crate::calm::World;
use crate::product;
use crate::protocol::Protocol;
use crate::state::{Process, State};
use leasehold::decide::renewal::Trust;
use leasehold::model::spec::minimal_item;
use leasehold::model::{Feed, Series, Spec};
use stateright::Property;

/// A promise that is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Promise {
    /// Only its owner's writes to a row are accepted.
    OneWriter,
    /// A row's epochs rise.
    EpochsRise,
    /// A row never has an owner and an epoch for the second time.
    PairsNeverRepeat,
    /// No two owners name a series alike.
    SeriesAreNotShared,
    /// A session that is over stays so.
    OverStaysOver,
    /// No two workers that run trust their lease and have a socket for one connection. Suspended processes, and `hold` without a valid
    /// lease, are exceptions.
    OneSocket,
    /// While everybody who can renew does, nobody is fenced who runs.
    NobodyIsFencedAlive,
    /// With events, and indexes, all is well soon.
    EventsRepair,
    /// What an index shows is well soon, whatever was lost.
    IndexRepairs,
    /// All is well after a sweep, whatever was lost, and with blind indexes.
    SweepRepairs,
    /// All is well at last.
    EverythingRepairs,
}

/// The promise as a property of the checker.
#[must_use]
pub fn property(promise: Promise) -> Property<Protocol> {
    match promise {
        Promise::OneWriter => Property::always("one session's writes are accepted at a time", |_, state: &State| {
            !state.store.witness.stale_write
        }),
        Promise::EpochsRise => Property::always("epochs rise", |_, state: &State| !state.store.witness.epoch_fell),
        Promise::PairsNeverRepeat => Property::always("owner and epoch never repeat", |_, state: &State| {
            state.store.witness.same_epoch.is_none_or(|(before, now)| before != now)
        }),
        Promise::SeriesAreNotShared => Property::always("no two owners share a series", series_differ),
        Promise::OverStaysOver => {
            Property::always("a session that is over stays over", |_, state: &State| !state.store.witness.came_back)
        }
        Promise::OneSocket => Property::always("no two sockets for one connection", one_socket),
        Promise::NobodyIsFencedAlive => {
            Property::always("nobody is fenced alive", |_, state: &State| !state.store.witness.live_fenced)
        }
        Promise::EventsRepair => Property::always("events lead to a good state", |model: &Protocol, state| {
            model.ends_well(state, World::Events)
        }),
        Promise::IndexRepairs => Property::always("indexes lead to a good state", |model: &Protocol, state| {
            model.ends_well(state, World::Index)
        }),
        Promise::SweepRepairs => Property::always("the sweep leads to a good state", |model: &Protocol, state| {
            model.ends_well(state, World::Sweep)
        }),
        Promise::EverythingRepairs => Property::always("all leads to a good state", |model: &Protocol, state| {
            model.ends_well(state, World::Everything)
        }),
    }
}

fn one_socket(model: &Protocol, state: &State) -> bool {
    model.connections().all(|c| {
        let mut served = 0;
        for p in 0..model.bounds.workers {
            let worker = &state.workers[usize::from(p)];
            let open = worker.process == Process::Running && worker.slots[usize::from(c)].socket;
            served += usize::from(open && model.slot_trust(state, p, c) == Trust::Valid);
        }
        served <= 1
    })
}

/// The names that the product gives to the series of two owners with one epoch.
fn series_differ(model: &Protocol, state: &State) -> bool {
    let Some((before, now)) = state.store.witness.same_epoch else { return true };
    let row = minimal_item(&product::connection_id(0), true, "wss://example.com/");
    let Ok(spec) = Spec::from_item(&row) else { return false };
    let name = |session| {
        let session = if model.repairs.series_names_session { session } else { 0 };
        let feed = Feed { ws_url: &spec.ws_url, sequence_pointer: None };
        Series::new(0, 0, &product::session_id(session), feed)
    };
    name(before) != name(now)
}
