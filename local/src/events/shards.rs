//! Which shards to read, and how far each got: PURE.
//!
//! "DynamoDB Streams: reading and processing a stream" (DynamoDB Developer Guide): a parent shard is read to its end
//! before its children, or the order of one item's changes is lost.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Where a mapping without progress starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartAt {
    /// With the oldest record that the stream still has.
    #[default]
    TrimHorizon,
    /// With what is written from now on.
    Latest,
}

/// How far a mapping got: to be stored and given to the next run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// By shard id.
    pub shards: BTreeMap<String, ShardProgress>,
}

/// How far one shard was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardProgress {
    /// Everything up to this sequence number is done with.
    #[serde(default)]
    pub after: Option<String>,
    /// The shard is closed and read to its end.
    #[serde(default)]
    pub finished: bool,
}

/// A shard as DescribeStream lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedShard {
    /// Its id.
    pub id: String,
    /// The shard that it continues, which may be gone.
    pub parent: Option<String>,
}

/// Where the next shard iterator starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Position {
    /// After a record.
    After(String),
    /// The oldest record.
    TrimHorizon,
    /// What comes from now on.
    Latest,
}

impl Progress {
    /// The listed shards to start reading: not read to the end, not being read, and with no parent still to be read.
    #[must_use]
    pub fn startable(&self, listed: &[ListedShard], reading: &BTreeSet<String>) -> Vec<String> {
        let ids: BTreeSet<&str> = listed.iter().map(|shard| shard.id.as_str()).collect();
        let mut startable = Vec::new();
        for shard in listed {
            let waits_for = shard.parent.as_deref().filter(|parent| ids.contains(parent) && !self.is_finished(parent));
            if !self.is_finished(&shard.id) && !reading.contains(&shard.id) && waits_for.is_none() {
                startable.push(shard.id.clone());
            }
        }
        startable
    }

    /// Where to start reading a shard. `at_first_look` are the shards that a mapping with [`StartAt::Latest`] found when it
    /// was new; any other shard is younger and read whole. So is one that an earlier run knew but had read nothing of:
    /// twice is better than a hole.
    #[must_use]
    pub fn position(&self, shard: &str, at_first_look: &BTreeSet<String>) -> Position {
        let after = self.shards.get(shard).and_then(|progress| progress.after.clone());
        match after {
            Some(sequence) => Position::After(sequence),
            None if at_first_look.contains(shard) => Position::Latest,
            None => Position::TrimHorizon,
        }
    }

    /// Forgets shards that the stream does not list any more. They would pile up: a shard lives for about four hours.
    pub fn forget_unlisted(&mut self, listed: &[ListedShard]) {
        self.shards.retain(|id, _| listed.iter().any(|shard| shard.id == *id));
    }

    fn is_finished(&self, shard: &str) -> bool {
        self.shards.get(shard).is_some_and(|progress| progress.finished)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shard(id: &str, parent: Option<&str>) -> ListedShard {
        ListedShard { id: id.to_owned(), parent: parent.map(str::to_owned) }
    }

    fn finished() -> ShardProgress {
        ShardProgress { after: None, finished: true }
    }

    #[test]
    fn children_wait_for_their_parent() {
        let listed = [shard("parent", Some("long-gone")), shard("child", Some("parent")), shard("other", None)];
        let mut progress = Progress::default();
        assert_eq!(progress.startable(&listed, &BTreeSet::new()), ["parent", "other"]);
        let reading = BTreeSet::from(["parent".to_owned(), "other".to_owned()]);
        assert!(progress.startable(&listed, &reading).is_empty());
        progress.shards.insert("parent".into(), finished());
        assert_eq!(progress.startable(&listed, &BTreeSet::from(["other".to_owned()])), ["child"]);
    }

    #[test]
    fn only_shards_of_the_first_look_start_at_the_latest_record() {
        let first_look = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        let mut progress = Progress::default();
        progress.shards.insert("b".into(), ShardProgress { after: Some("7".into()), finished: false });
        assert_eq!(progress.position("a", &first_look), Position::Latest);
        assert_eq!(progress.position("b", &first_look), Position::After("7".into()));
        assert_eq!(progress.position("c", &first_look), Position::TrimHorizon);
    }

    #[test]
    fn progress_is_stored_as_json_and_old_shards_are_forgotten() {
        let mut progress = Progress::default();
        progress.shards.insert("a".into(), ShardProgress { after: Some("7".into()), finished: false });
        progress.shards.insert("b".into(), finished());
        let text = serde_json::to_string(&progress).expect("plain data");
        assert_eq!(serde_json::from_str::<Progress>(&text).expect("what was written"), progress);
        progress.forget_unlisted(&[shard("a", None)]);
        assert_eq!(progress.shards.keys().collect::<Vec<_>>(), ["a"]);
    }
}
