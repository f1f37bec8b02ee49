use super::*;
use crate::model::SessionState;

/// Seconds of lease time at which a test begins.
const START: u64 = 1_000;

fn now(seconds: u64) -> Now {
    Now { lower_ms: seconds * 1_000, upper_ms: seconds * 1_000 + 1_000 }
}

fn session(id: &str, renewed_s: u64) -> Session {
    Session {
        task_arn: Some(format!("arn:task/{id}")),
        heartbeat: renewed_s,
        lease_expires_at_ms: renewed_s * 1_000 + 20_000,
        ..Session::sample(id, SessionState::Active)
    }
}

/// A fleet and a reconcile that applies what it decides.
struct Fleet {
    sessions: Vec<Session>,
    looks: Looks,
    stopped: BTreeSet<String>,
    running: Option<BTreeSet<String>>,
    rules: Rules,
}

impl Fleet {
    /// Sessions that renewed at START, which was looked at then.
    fn of(ids: &[&str]) -> Self {
        Self {
            sessions: ids.iter().map(|id| session(id, START)).collect(),
            looks: Looks { last_look_ms: START * 1_000, grace_until_ms: 0 },
            stopped: BTreeSet::new(),
            running: None,
            rules: Rules::default(),
        }
    }

    fn renew(&mut self, id: &str, seconds: u64) {
        let session = self.sessions.iter_mut().find(|session| session.id.as_str() == id).unwrap();
        session.lease_expires_at_ms = seconds * 1_000 + 20_000;
        session.heartbeat += 1;
    }

    fn look(&mut self, seconds: u64) -> Look {
        let evidence = Evidence { stopped_tasks: &self.stopped, running_tasks: self.running.as_ref() };
        let look = look(&self.sessions, self.looks, evidence, now(seconds), &Timing::default(), self.rules);
        self.looks = look.looks;
        for action in &look.actions {
            match action {
                SessionAction::Fence { id, .. } => self.find(id).state = SessionState::Fenced,
                SessionAction::Suspect { id, suspicion } => self.find(id).suspicion = Some(*suspicion),
                SessionAction::ClearSuspicion { id, .. } => self.find(id).suspicion = None,
                SessionAction::RewriteExpiry { id, expires_at_ms, .. } => {
                    self.find(id).lease_expires_at_ms = *expires_at_ms;
                }
            }
        }
        look
    }

    fn find(&mut self, id: &SessionId) -> &mut Session {
        self.sessions.iter_mut().find(|session| session.id == *id).unwrap()
    }

    fn fenced(&self) -> Vec<&str> {
        let fenced = self.sessions.iter().filter(|session| session.state == SessionState::Fenced);
        fenced.map(|session| session.id.as_str()).collect()
    }

    fn suspects(&self) -> Vec<&str> {
        let suspects = self.sessions.iter().filter(|session| session.suspicion.is_some());
        suspects.map(|session| session.id.as_str()).collect()
    }
}

#[test]
fn one_dead_worker_of_three_is_fenced_at_the_first_look_after_its_lease_and_the_skew() {
    let mut fleet = Fleet::of(&["a", "b", "c"]);
    for seconds in [1_010, 1_020, 1_030] {
        fleet.renew("a", seconds - 1);
        fleet.renew("b", seconds - 2);
        fleet.look(seconds);
        let expected: &[&str] = if seconds > START + 23 { &["c"] } else { &[] };
        assert_eq!(fleet.fenced(), expected, "at {seconds}");
    }
}

#[test]
fn nobody_is_fenced_before_the_lease_and_the_skew_are_over() {
    let mut fleet = Fleet::of(&["a", "b", "c"]);
    fleet.looks.last_look_ms = (START + 15) * 1_000;
    fleet.renew("a", START + 20);
    fleet.renew("b", START + 20);
    fleet.look(START + 23);
    assert!(fleet.fenced().is_empty());
    fleet.look(START + 24);
    assert_eq!(fleet.fenced(), ["c"]);
}

#[test]
fn where_half_of_the_fleet_falls_silent_it_is_suspected_first_and_fenced_ten_seconds_later() {
    let mut fleet = Fleet::of(&["a", "b", "c", "d"]);
    for seconds in [1_010, 1_020, 1_030, 1_040] {
        fleet.renew("a", seconds - 1);
        fleet.renew("b", seconds - 1);
        fleet.look(seconds);
        if seconds == 1_030 {
            assert_eq!((fleet.fenced().len(), fleet.suspects()), (0, vec!["c", "d"]));
        }
    }
    assert_eq!(fleet.fenced(), ["c", "d"]);
}

#[test]
fn a_suspicion_is_void_once_the_heartbeat_has_moved() {
    let mut fleet = Fleet::of(&["a", "b", "c", "d"]);
    for seconds in [1_010, 1_020, 1_030] {
        fleet.renew("a", seconds - 1);
        fleet.renew("b", seconds - 1);
        fleet.look(seconds);
    }
    fleet.renew("c", 1_031);
    fleet.renew("a", 1_039);
    fleet.renew("b", 1_039);
    fleet.look(1_040);
    assert_eq!(fleet.fenced(), ["d"]);
    // Silent again: what was suspected under another heartbeat does not count, and it is alone now.
    for seconds in [1_050, 1_060] {
        fleet.renew("a", seconds - 1);
        fleet.renew("b", seconds - 1);
        let look = fleet.look(seconds);
        let fences = look.actions.iter().any(|action| matches!(action, SessionAction::Fence { .. }));
        assert_eq!(fences, seconds == 1_060, "{look:?}");
    }
}

/// DynamoDB is away for two lease times, processes run on.
#[test]
fn nobody_is_fenced_when_the_store_was_away_for_all_and_the_fleet_comes_back_one_by_one() {
    let mut fleet = Fleet::of(&["a", "b", "c"]);
    for seconds in [1_010, 1_020, 1_030, 1_040, 1_050] {
        let look = fleet.look(seconds);
        assert_eq!(look.all_silent, seconds > 1_010);
    }
    fleet.renew("a", 1_058);
    fleet.look(1_060);
    assert_eq!(fleet.suspects(), ["b", "c"]);
    for id in ["a", "b", "c"] {
        fleet.renew(id, 1_066);
    }
    fleet.look(1_070);
    fleet.look(1_075);
    assert!(fleet.fenced().is_empty());
}

/// DynamoDB is away for two lease times, processes run on.
#[test]
fn a_fleet_of_one_survives_an_outage_without_a_look() {
    let mut fleet = Fleet::of(&["a"]);
    fleet.look(1_200);
    assert!(fleet.fenced().is_empty());
    fleet.renew("a", 1_203);
    fleet.look(1_210);
    assert!(fleet.fenced().is_empty());
}

#[test]
fn a_fleet_of_one_that_is_dead_is_fenced_once_its_replacement_renews() {
    let mut fleet = Fleet::of(&["a"]);
    for seconds in [1_010, 1_020, 1_030, 1_040] {
        fleet.look(seconds);
    }
    assert!(fleet.fenced().is_empty(), "it could be the store");
    fleet.sessions.push(session("b", 1_045));
    fleet.look(1_050);
    assert_eq!((fleet.fenced().len(), fleet.suspects()), (0, vec!["a"]));
    fleet.renew("b", 1_058);
    fleet.look(1_060);
    assert_eq!(fleet.fenced(), ["a"]);
}

#[test]
fn suspicions_are_cleared_when_everybody_is_silent() {
    let mut fleet = Fleet::of(&["a", "b", "c", "d"]);
    for seconds in [1_010, 1_020, 1_030] {
        fleet.renew("a", seconds - 1);
        fleet.renew("b", seconds - 1);
        fleet.look(seconds);
    }
    fleet.looks.last_look_ms = 1_040_000;
    fleet.look(1_045);
    assert!(fleet.suspects().is_empty() && fleet.fenced().is_empty());
}

/// Nothing about a session is remembered from look to look but what is in the table.
#[test]
fn the_first_look_ever_and_one_after_a_gap_suspect_before_they_fence() {
    for last_look_ms in [0, (START + 14) * 1_000] {
        let mut fleet = Fleet::of(&["a", "b", "c"]);
        fleet.looks.last_look_ms = last_look_ms;
        fleet.renew("a", START + 28);
        fleet.renew("b", START + 28);
        fleet.look(START + 30);
        assert_eq!((fleet.fenced().len(), fleet.suspects()), (0, vec!["c"]));
        fleet.renew("a", START + 38);
        fleet.renew("b", START + 38);
        fleet.look(START + 40);
        assert_eq!(fleet.fenced(), ["c"]);
    }
}

/// Ticks queue down: only the minute's schedule runs.
#[test]
fn looks_that_are_far_apart_as_a_rule_are_no_doubt_about_rows_while_nobody_is_silent() {
    let mut fleet = Fleet::of(&["a", "b", "c"]);
    let away = |fleet: &mut Fleet, seconds: u64, renewing: &[&str]| {
        renewing.iter().for_each(|id| fleet.renew(id, seconds - 3));
        fleet.look(seconds).store_may_have_been_away
    };
    assert!(away(&mut fleet, 1_060, &["a", "b", "c"]), "the first gap may have been an outage");
    for seconds in [1_120, 1_180, 1_240] {
        assert!(!away(&mut fleet, seconds, &["a", "b", "c"]), "at {seconds}");
    }
    assert!(away(&mut fleet, 1_300, &["a", "b"]), "somebody is silent");
}

#[test]
fn after_an_outage_rows_are_in_doubt_until_grace_has_run_out_though_nobody_is_silent_any_more() {
    let mut fleet = Fleet::of(&["a", "b", "c"]);
    for seconds in [1_010, 1_020, 1_030] {
        assert_eq!(fleet.look(seconds).store_may_have_been_away, seconds > 1_010);
    }
    for (seconds, away) in [(1_040, true), (1_050, false), (1_060, false)] {
        ["a", "b", "c"].iter().for_each(|id| fleet.renew(id, seconds - 1));
        assert_eq!(fleet.look(seconds).store_may_have_been_away, away, "at {seconds}");
    }
}

#[test]
fn a_reported_task_is_fenced_at_once_even_where_all_are_silent() {
    let mut fleet = Fleet::of(&["a", "b"]);
    fleet.stopped.insert("arn:task/b".into());
    fleet.look(START + 1);
    assert_eq!(fleet.fenced(), ["b"]);
    let mut fleet = Fleet::of(&["a"]);
    fleet.stopped.insert("arn:task/a".into());
    assert!(fleet.look(START + 60).all_silent);
    assert_eq!(fleet.fenced(), ["a"]);
}

#[test]
fn a_view_of_the_fleet_without_the_task_ends_the_doubt_but_only_about_what_is_expired() {
    let mut fleet = Fleet::of(&["a", "b"]);
    fleet.renew("b", START + 10);
    assert!(fleet.look(START + 24).in_doubt);
    fleet.running = Some(BTreeSet::new());
    fleet.look(START + 25);
    assert_eq!(fleet.fenced(), ["a"], "b is silent and not expired");
    let mut fleet = Fleet::of(&["a"]);
    fleet.running = Some(BTreeSet::from(["arn:task/a".into()]));
    fleet.look(START + 30);
    assert!(fleet.fenced().is_empty(), "its task runs: the store is away");
}

#[test]
fn an_expiry_too_far_ahead_is_rewritten() {
    let mut fleet = Fleet::of(&["a", "b"]);
    fleet.renew("a", START + 3_600);
    let look = fleet.look(START + 1);
    let expires_at_ms = now(START + 1).upper_ms + 20_000;
    let heartbeat = START + 1;
    assert_eq!(look.actions, [SessionAction::RewriteExpiry { id: SessionId::new("a"), heartbeat, expires_at_ms }]);
}

#[test]
fn over_sessions_count_for_nothing() {
    let mut fleet = Fleet::of(&["a", "b", "c"]);
    fleet.sessions[1].state = SessionState::Ended;
    fleet.sessions[2].state = SessionState::Fenced;
    assert!(fleet.look(START + 30).all_silent);
    assert!(fleet.look(START + 40).actions.is_empty());
}

#[test]
fn without_the_fence_nobody_is_told_that_it_is_over() {
    let mut fleet = Fleet::of(&["a", "b", "c"]);
    fleet.rules.fence = false;
    fleet.looks.last_look_ms = (START + 20) * 1_000;
    fleet.renew("a", START + 28);
    fleet.renew("b", START + 28);
    let look = fleet.look(START + 30);
    assert!(look.actions.is_empty(), "{look:?}");
}
