//! Records of the stream, decoded one by one.

use leasehold::decide::desired::{old_owner, wants_look};
use leasehold::model::claim::JsonFault;
use leasehold::model::connection::attr;
use leasehold::model::{ConnectionId, IdError, Item, RowError, SessionId, fields};
use serde::Deserialize;
use serde_json::Value;

/// The only view that shows what was there before.
const WANTED_VIEW: &str = "NEW_AND_OLD_IMAGES";

/// A change of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The row.
    pub id: ConnectionId,
    /// What names the record in the answer, if it has a name. AWS takes an empty one for a failure of the whole batch.
    pub sequence_number: Option<String>,
    /// Who owned the row before.
    pub old_owner: Option<SessionId>,
    /// Whether the change is one that asks for a look. The mapping filters too, but a filter may be wrong, or ignored.
    pub wants_look: bool,
}

/// Why a record is none of ours. Sending it again would not change it.
#[derive(Debug, thiserror::Error)]
pub enum BadRecord {
    /// Not of the form of a stream record.
    #[error("no record of a DynamoDB stream: {0}")]
    Form(JsonFault),
    /// Null images look like empty rows, so the view is checked.
    #[error("the stream's view is {found}: it must be {WANTED_VIEW}")]
    View {
        /// The view.
        found: &'static str,
    },
    /// The view should have images, and there are none.
    #[error("a record without images")]
    NoImages,
    /// The key is no string, or there is none.
    #[error(transparent)]
    Key(#[from] RowError),
    /// The key is no connection's.
    #[error(transparent)]
    Id(#[from] IdError),
}

#[derive(Deserialize)]
struct Record {
    dynamodb: Body,
}

/// The record's time is left out on purpose: nothing is decided by it.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Body {
    keys: Item,
    old_image: Option<Item>,
    new_image: Option<Item>,
    sequence_number: Option<String>,
    stream_view_type: Option<String>,
}

impl Change {
    /// Decodes a record.
    ///
    /// # Errors
    /// [`BadRecord`].
    pub fn decode(record: Value) -> Result<Self, BadRecord> {
        let body = serde_json::from_value::<Record>(record).map_err(|error| BadRecord::Form(error.into()))?.dynamodb;
        if body.stream_view_type.as_deref() != Some(WANTED_VIEW) {
            return Err(BadRecord::View { found: view(body.stream_view_type.as_deref()) });
        }
        if body.old_image.is_none() && body.new_image.is_none() {
            return Err(BadRecord::NoImages);
        }
        let pk = fields::string(&body.keys, attr::PK)?;
        let pk = pk.ok_or(RowError::Missing { attribute: attr::PK, wanted: "CONN#<id>" })?;
        Ok(Self {
            id: ConnectionId::from_pk(&pk)?,
            sequence_number: body.sequence_number.filter(|number| !number.is_empty()),
            old_owner: old_owner(body.old_image.as_ref()),
            wants_look: wants_look(body.old_image.as_ref(), body.new_image.as_ref()),
        })
    }
}

/// A view by its own name. Anything else is not quoted: nobody knows what a malformed record has there.
fn view(found: Option<&str>) -> &'static str {
    let Some(found) = found else { return "not given" };
    ["KEYS_ONLY", "NEW_IMAGE", "OLD_IMAGE"].into_iter().find(|view| *view == found).unwrap_or("none that DynamoDB has")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn record(view: Value, old: Value, new: Value) -> Value {
        json!({"dynamodb": {
            "Keys": {"Pk": {"S": "CONN#a"}}, "OldImage": old, "NewImage": new, "SequenceNumber": "", "StreamViewType": view,
        }})
    }

    fn new_row() -> Value {
        json!({"Pk": {"S": "CONN#a"}, "desired_state": {"S": "STARTED"}})
    }

    #[test]
    fn images_are_not_guessed_from_a_stream_of_keys_only() {
        for view in [json!("KEYS_ONLY"), json!("NEW_IMAGE"), json!(null)] {
            let error = Change::decode(record(view, json!(null), new_row())).unwrap_err();
            assert!(matches!(error, BadRecord::View { .. }), "{error}");
        }
        let error = Change::decode(record(json!("NEW_AND_OLD_IMAGES"), json!(null), json!(null))).unwrap_err();
        assert!(matches!(error, BadRecord::NoImages));
    }

    #[test]
    fn an_error_quotes_nothing_of_a_malformed_record() {
        let records = [
            json!("SECRET"),
            json!({"dynamodb": "SECRET"}),
            json!({"dynamodb": {"Keys": {"Pk": {"S": "CONN#a"}}, "NewImage": {"headers": {"SECRET": "SECRET"}}}}),
            record(json!("SECRET"), json!(null), new_row()),
        ];
        for record in records {
            let error = Change::decode(record).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("SECRET"), "{error:?}");
        }
    }

    #[test]
    fn an_empty_sequence_number_names_nothing() {
        let change = Change::decode(record(json!("NEW_AND_OLD_IMAGES"), json!(null), new_row())).unwrap();
        assert_eq!(change.sequence_number, None);
        assert!(change.wants_look && change.old_owner.is_none());
    }
}
