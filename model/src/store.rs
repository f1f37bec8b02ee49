//! The store's side: rows and sessions, and every conditional write as the adapters send it (`src/aws/connections.rs`,
//! `src/aws/sessions.rs`).

use crate::repairs::Repairs;
use crate::state::{CONNECTIONS, SESSIONS, Set, bit};

/// What a row's owner last said of it. Less than the product has: only what decisions look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Observed {
    /// Nothing yet.
    Pending,
    /// Acquired at this lease time, and not open yet.
    Connecting(u32),
    /// Open.
    Connected,
    /// Given up.
    Stopped,
}

/// A row of `connections`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Row {
    /// The wish.
    pub started: bool,
    /// Which spec.
    pub spec: u8,
    /// The owner.
    pub owner: Option<u8>,
    /// The epoch.
    pub epoch: Option<u32>,
    /// When a free row may be taken; where rows are leased by themselves, when an owner's lease ends.
    pub expires_ms: Option<u32>,
    /// The status.
    pub observed: Observed,
}

impl Row {
    /// A row as people write it: three attributes.
    #[must_use]
    pub fn written_by_hand(spec: u8) -> Self {
        Self { started: true, spec, owner: None, epoch: None, expires_ms: None, observed: Observed::Pending }
    }
}

/// What must still be there for a write to a row: owner and epoch as read; and, if given, an expiry that is absent or past.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Expected {
    /// As read.
    pub owner: Option<u8>,
    /// As read.
    pub epoch: Option<u32>,
    /// The expiry is absent, or at most this.
    pub expired_by_ms: Option<u32>,
}

impl Expected {
    fn holds(&self, row: &Row) -> bool {
        let expired = self.expired_by_ms.is_none_or(|by_ms| row.expires_ms.is_none_or(|at_ms| at_ms <= by_ms));
        row.owner == self.owner && row.epoch == self.epoch && expired
    }
}

/// Where a session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the product's own words")]
pub enum Life {
    Active,
    Fenced,
    Ended,
}

/// A row of `sessions`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionRow {
    /// Where it stands.
    pub life: Life,
    /// The last heartbeat number.
    pub heartbeat: u16,
    /// When its lease ends.
    pub expires_ms: u32,
    /// The heartbeat under which it is suspected, and since when.
    pub suspicion: Option<(u16, u32)>,
    /// An earlier look found that it owns nothing (over sessions only).
    pub empty: bool,
}

/// The marks beside a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Marks {
    /// Rises with each mark.
    pub version: u8,
    /// The connections to look at.
    pub ids: Set,
    /// Look at everything.
    pub resync: bool,
}

/// What a write came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written<T> {
    /// Applied; this is there now.
    Applied(T),
    /// Refused; this was there instead.
    Refused(Option<T>),
}

/// What must never happen, noticed where it happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Witness {
    /// The highest epoch ever written to each row, and for whom.
    pub highest: [Option<(u32, u8)>; CONNECTIONS],
    /// A write was accepted whose sender was not the row's owner under that epoch.
    pub stale_write: bool,
    /// An epoch was not above all before it.
    pub epoch_fell: bool,
    /// Two owners of one row, one after the other, that had the same epoch.
    pub same_epoch: Option<(u8, u8)>,
    /// Sessions that have been over.
    pub over: Set,
    /// One of them was ACTIVE again.
    pub came_back: bool,
    /// A session was fenced whose worker ran.
    pub live_fenced: bool,
}

/// What is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Store {
    /// The table of connections.
    pub rows: [Option<Row>; CONNECTIONS],
    /// Its indexes, which may lag.
    pub index: [Option<Row>; CONNECTIONS],
    /// The table of sessions.
    pub sessions: [Option<SessionRow>; SESSIONS],
    /// Marks.
    pub marks: [Marks; SESSIONS],
    /// Reconcile's memory: its last look.
    pub last_look_ms: u32,
    /// Reconcile's memory: until when it suspects before it fences (0: it does not).
    pub grace_until_ms: u32,
    /// What must never happen.
    pub witness: Witness,
}

impl Store {
    /// A new session: its id must not exist.
    pub fn register(&mut self, session: u8, expires_ms: u32, repairs: &Repairs) {
        if self.session(session).is_none() || !repairs.registration_needs_absence {
            let row = SessionRow { life: Life::Active, heartbeat: 0, expires_ms, suspicion: None, empty: false };
            self.put_session(session, row);
        }
    }

    /// A renewal: exists, ACTIVE, and a higher heartbeat number.
    pub fn renew(&mut self, session: u8, heartbeat: u16, expires_ms: u32, repairs: &Repairs) -> Written<SessionRow> {
        let upsert = SessionRow { life: Life::Active, heartbeat: 0, expires_ms, suspicion: None, empty: false };
        let found = match self.session(session) {
            None if !repairs.renewal_needs_row => upsert,
            None => return Written::Refused(None),
            Some(found) => found,
        };
        let rises = found.heartbeat < heartbeat || !repairs.rising_heartbeat;
        if found.life != Life::Active || !rises {
            return Written::Refused(Some(found));
        }
        let row = SessionRow { heartbeat, expires_ms, ..found };
        self.put_session(session, row);
        Written::Applied(row)
    }

    /// The end of a session by itself: exists, ACTIVE. Returns whether it was applied.
    pub fn end(&mut self, session: u8) -> bool {
        let active = self.session(session).is_some_and(|row| row.life == Life::Active);
        if active {
            self.put_over(session, Life::Ended);
        }
        active
    }

    /// A write of a look: exists, ACTIVE, heartbeat as read.
    pub fn write_session(&mut self, session: u8, heartbeat: u16, change: impl FnOnce(&mut SessionRow)) -> bool {
        let Some(mut row) = self.session(session) else { return false };
        if row.life != Life::Active || row.heartbeat != heartbeat {
            return false;
        }
        change(&mut row);
        match row.life {
            Life::Active => self.put_session(session, row),
            life => self.put_over(session, life),
        }
        true
    }

    /// Takes a connection.
    pub fn acquire(
        &mut self,
        c: u8,
        me: u8,
        expected: &Expected,
        epoch: u32,
        since_ms: u32,
        expires_ms: Option<u32>,
    ) -> Written<Row> {
        let Some(found) = self.row(c) else { return Written::Refused(None) };
        if !found.started || !expected.holds(&found) {
            return Written::Refused(Some(found));
        }
        self.witness.acquired(c, me, epoch);
        let observed = Observed::Connecting(since_ms);
        let row = Row { owner: Some(me), epoch: Some(epoch), expires_ms, observed, ..found };
        self.put_row(c, row);
        Written::Applied(row)
    }

    /// Renews a row's own lease, as its owner: a later expiry than the stored one.
    pub fn renew_row(&mut self, c: u8, me: u8, epoch: u32, expires_ms: u32, repairs: &Repairs) -> Written<Row> {
        let Some(found) = self.row(c) else { return Written::Refused(None) };
        let rises = found.expires_ms.is_some_and(|at_ms| at_ms < expires_ms) || !repairs.rising_expiry;
        if found.owner != Some(me) || found.epoch != Some(epoch) || !rises {
            return Written::Refused(Some(found));
        }
        let row = Row { expires_ms: Some(expires_ms), ..found };
        self.put_row(c, row);
        Written::Applied(row)
    }

    /// Gives a connection up, as its owner.
    pub fn release(&mut self, c: u8, me: u8, epoch: u32, repairs: &Repairs) -> Written<Row> {
        match self.mine(c, me, epoch, repairs) {
            Ok(found) => {
                let row = Row { owner: None, expires_ms: Some(0), observed: Observed::Stopped, ..found };
                self.put_row(c, row);
                Written::Applied(row)
            }
            Err(found) => Written::Refused(found),
        }
    }

    /// Status and checkpoint, as its owner.
    pub fn status(&mut self, c: u8, me: u8, epoch: u32, repairs: &Repairs) -> Written<Row> {
        match self.mine(c, me, epoch, repairs) {
            Ok(found) => {
                let row = Row { observed: Observed::Connected, ..found };
                self.put_row(c, row);
                Written::Applied(row)
            }
            Err(found) => Written::Refused(found),
        }
    }

    /// Owner and epoch are mine; without that rule, the row exists.
    fn mine(&mut self, c: u8, me: u8, epoch: u32, repairs: &Repairs) -> Result<Row, Option<Row>> {
        let found = self.row(c).ok_or(None)?;
        let mine = found.owner == Some(me) && found.epoch == Some(epoch);
        if repairs.rules.epoch_conditions && !mine {
            return Err(Some(found));
        }
        self.witness.stale_write |= !mine;
        Ok(found)
    }

    /// Frees a row that is not wanted: owner and epoch as read.
    pub fn reap(&mut self, c: u8, expected: &Expected, repairs: &Repairs) {
        let holds = |row: &Row| expected.holds(row) || !repairs.reap_checks_owner;
        if let Some(found) = self.row(c).filter(|row| !row.started && holds(row)) {
            let row = Row { owner: None, expires_ms: Some(0), observed: Observed::Stopped, ..found };
            self.put_row(c, row);
        }
    }

    /// A first epoch: exists, no owner, no epoch.
    pub fn stamp(&mut self, c: u8, free_at_ms: u32) {
        if let Some(found) = self.row(c).filter(|row| row.owner.is_none() && row.epoch.is_none()) {
            self.put_row(c, Row { epoch: Some(0), expires_ms: Some(free_at_ms), ..found });
        }
    }

    /// Another time for a row: owner, epoch and expiry as read.
    pub fn restamp(&mut self, c: u8, owner: Option<u8>, epoch: u32, expires_ms: u32, free_at_ms: u32) {
        let as_read = |row: &Row| row.owner == owner && row.epoch == Some(epoch) && row.expires_ms == Some(expires_ms);
        if let Some(found) = self.row(c).filter(as_read) {
            self.put_row(c, Row { expires_ms: Some(free_at_ms), ..found });
        }
    }

    /// A mark; where no more fit, or everything is to be looked at already, that.
    pub fn mark(&mut self, session: u8, c: u8, most: u32) {
        let marks = &mut self.marks[usize::from(session)];
        marks.version += 1;
        let ids = marks.ids | bit(c);
        if marks.resync || ids.count_ones() > most {
            *marks = Marks { version: marks.version, ids: 0, resync: true };
        } else {
            marks.ids = ids;
        }
    }

    /// Empties the marks: version as read. The version stays.
    pub fn remove_marks(&mut self, session: u8, version: u8, repairs: &Repairs) {
        let marks = &mut self.marks[usize::from(session)];
        if marks.version == version || !repairs.removal_needs_version {
            let version = if repairs.version_goes_on { marks.version } else { 0 };
            *marks = Marks { version, ids: 0, resync: false };
        }
    }

    /// Removes an over session's row: not ACTIVE. Its marks go with it.
    pub fn remove_session(&mut self, session: u8) {
        if self.session(session).is_some_and(|row| row.life != Life::Active) {
            self.sessions[usize::from(session)] = None;
            self.marks[usize::from(session)] = Marks::default();
        }
    }

    /// Remembers a look; what is remembered only rises.
    pub fn remember_look(&mut self, last_look_ms: u32, grace_until_ms: u32) {
        if grace_until_ms >= last_look_ms {
            self.grace_until_ms = self.grace_until_ms.max(grace_until_ms);
        }
        self.last_look_ms = self.last_look_ms.max(last_look_ms);
    }

    /// A row.
    #[must_use]
    pub fn row(&self, c: u8) -> Option<Row> {
        self.rows[usize::from(c)]
    }

    /// What the indexes show of a row.
    #[must_use]
    pub fn indexed(&self, c: u8) -> Option<Row> {
        self.index[usize::from(c)]
    }

    /// A session's row.
    #[must_use]
    pub fn session(&self, session: u8) -> Option<SessionRow> {
        self.sessions[usize::from(session)]
    }

    /// Writes a row.
    pub fn put_row(&mut self, c: u8, row: Row) {
        self.rows[usize::from(c)] = Some(row);
    }

    fn put_session(&mut self, session: u8, row: SessionRow) {
        self.witness.came_back |= self.witness.over & bit(session) != 0;
        self.sessions[usize::from(session)] = Some(row);
    }

    /// Nothing is decided by the lease of a session that is over, so it is left out.
    fn put_over(&mut self, session: u8, life: Life) {
        let row = SessionRow { life, heartbeat: 0, expires_ms: 0, suspicion: None, empty: false };
        self.sessions[usize::from(session)] = Some(row);
        self.witness.over |= bit(session);
    }
}

impl Witness {
    fn acquired(&mut self, c: u8, me: u8, epoch: u32) {
        let highest = &mut self.highest[usize::from(c)];
        if let Some((before, owner)) = *highest {
            self.epoch_fell |= epoch <= before;
            if epoch == before {
                self.same_epoch = Some((owner, me));
            }
        }
        if highest.is_none_or(|(before, _)| epoch > before) {
            *highest = Some((epoch, me));
        }
    }
}
