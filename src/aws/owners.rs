//! What is known of rows' owners during one invocation.

use super::error::StoreError;
use super::store::Store;
use super::together::together;
use crate::decide::acquire::OwnerView;
use crate::model::{Session, SessionId};
use std::collections::{BTreeSet, HashMap};

enum Known {
    Gone,
    /// There is a row that cannot be read: it is not over until reconcile has fenced it.
    Unreadable,
    Session(Box<Session>),
}

/// Sessions by id, each read consistently once. What is over stays over, and a live one that ends meanwhile is only marked in vain.
#[derive(Default)]
pub struct Owners {
    known: HashMap<SessionId, Known>,
}

impl Owners {
    /// With sessions that were read already.
    #[must_use]
    pub fn knowing(sessions: &[Session]) -> Self {
        let known = sessions.iter().map(|session| (session.id.clone(), Known::Session(Box::new(session.clone()))));
        Self { known: known.collect() }
    }

    /// Reads those of `ids` that are not known yet.
    ///
    /// # Errors
    /// The last [`StoreError`]; the others are known then all the same.
    pub async fn learn(&mut self, store: &Store, ids: BTreeSet<SessionId>) -> Result<(), StoreError> {
        let mut reads = Vec::new();
        for id in ids {
            if !self.known.contains_key(&id) {
                reads.push(async move {
                    let answer = store.session(&id).await;
                    (id, answer)
                });
            }
        }
        let mut outcome = Ok(());
        for (id, answer) in together(reads).await {
            let known = match answer {
                Ok(None) => Known::Gone,
                Ok(Some(item)) => match Session::from_item(&item) {
                    Ok(session) => Known::Session(Box::new(session)),
                    Err(error) => {
                        tracing::warn!(event = "bad_session", session = %id, %error, "a session's row cannot be read");
                        Known::Unreadable
                    }
                },
                Err(error) => {
                    outcome = Err(error);
                    continue;
                }
            };
            self.known.insert(id, known);
        }
        outcome
    }

    /// What is known of an owner (`None`: the row has none); `None` when it could not be read.
    #[must_use]
    pub fn view(&self, owner: Option<&SessionId>) -> Option<OwnerView<'_>> {
        let Some(owner) = owner else { return Some(OwnerView::NotNeeded) };
        Some(match self.known.get(owner)? {
            Known::Gone => OwnerView::Gone,
            Known::Unreadable => OwnerView::NotNeeded,
            Known::Session(session) => OwnerView::Session(session),
        })
    }
}
