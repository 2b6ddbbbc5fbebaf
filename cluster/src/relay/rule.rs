//! Which messages are interfered with, and how: as data.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::ApiKey;
use serde::{Serialize, Serializer};

use crate::error_name::error_name;
use crate::node::NodeName;

/// The messages that can be named: those that nodes send each other.
const MESSAGES: [Message; 5] = [
    Message(None),
    Message(Some(ApiKey::Fetch)),
    Message(Some(ApiKey::AlterPartition)),
    Message(Some(ApiKey::BrokerHeartbeat)),
    Message(Some(ApiKey::BrokerRegistration)),
];

/// What a controller may answer to a proposal for an ISR (R14 to R16).
const REFUSALS: [Refusal; 6] = [
    Refusal(ResponseError::InvalidUpdateVersion),
    Refusal(ResponseError::FencedLeaderEpoch),
    Refusal(ResponseError::InvalidRequest),
    Refusal(ResponseError::IneligibleReplica),
    Refusal(ResponseError::OperationNotAttempted),
    Refusal(ResponseError::UnknownServerError),
];

/// The one of `all` that is written so; `what` they are.
fn named<T: Copy + fmt::Display>(all: &[T], text: &str, what: &str) -> Result<T, String> {
    all.iter().copied().find(|one| one.to_string() == text).ok_or_else(|| {
        let names: Vec<_> = all.iter().map(ToString::to_string).collect();
        format!("`{text}` is no {what}; there are {}", names.join(", "))
    })
}

/// A kind of message between nodes, or any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message(Option<ApiKey>);

impl Message {
    /// Those that can be named.
    pub fn all() -> impl Iterator<Item = Self> {
        MESSAGES.into_iter()
    }

    fn is(self, key: i16) -> bool {
        self.0.is_none_or(|api| api as i16 == key)
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("any"),
            Some(api) => write!(f, "{api:?}"),
        }
    }
}

impl FromStr for Message {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        named(&MESSAGES, text, "message")
    }
}

/// An error that a request is answered with, instead of by whom it was sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal(ResponseError);

impl Refusal {
    /// Kafka's code.
    pub(crate) const fn code(self) -> i16 {
        self.0.code()
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&error_name(self.0))
    }
}

impl FromStr for Refusal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        named(&REFUSALS, text, "refusal")
    }
}

/// Questions or answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// What is asked.
    Requests,
    /// What is answered.
    Answers,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Requests => "requests",
            Self::Answers => "answers",
        })
    }
}

/// What is done to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// It waits until the rule is lifted, and then goes on its way, however late.
    Hold,
    /// It is lost, and so is the connection.
    Lose,
    /// It never arrives; who sent it gets this answer. Only a request for another ISR can be refused.
    Refuse(Refusal),
}

/// These messages, from one of these nodes to one of those.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What is done.
    pub deed: Deed,
    /// To questions or answers.
    pub side: Side,
    /// Of this kind.
    pub message: Message,
    /// Who sends it.
    pub from: BTreeSet<NodeName>,
    /// To whom.
    pub to: BTreeSet<NodeName>,
    /// The first so many of them pass.
    pub spared: u64,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |nodes: &BTreeSet<NodeName>| {
            nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
        };
        let (from, to) = (names(&self.from), names(&self.to));
        let Self { side, message, .. } = self;
        match self.deed {
            Deed::Hold => write!(f, "hold {side} {message} from {from} to {to}")?,
            Deed::Lose => write!(f, "lose {side} {message} from {from} to {to}")?,
            Deed::Refuse(why) => write!(f, "refuse {message} from {from} to {to} with {why}")?,
        }
        if self.spared > 0 {
            write!(f, " after {}", self.spared)?;
        }
        Ok(())
    }
}

impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }
}

/// A message on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Crossing {
    pub(super) side: Side,
    pub(super) api: i16,
    pub(super) from: NodeName,
    pub(super) to: NodeName,
}

/// The oldest of the rules in force that fits a message.
pub(super) fn fitting(rules: &BTreeMap<u64, Rule>, crossing: Crossing) -> Option<(u64, &Rule)> {
    let fits = |rule: &Rule| {
        rule.side == crossing.side
            && rule.message.is(crossing.api)
            && rule.from.contains(&crossing.from)
            && rule.to.contains(&crossing.to)
    };
    rules.iter().find(|(_, rule)| fits(rule)).map(|(id, rule)| (*id, rule))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_rule_that_fits_decides() {
        let nodes = |ids: &[u32]| ids.iter().copied().map(NodeName::new).collect();
        let rule = |deed, side, message: &str| Rule {
            deed,
            side,
            message: message.parse().unwrap(),
            from: nodes(&[1, 2]),
            to: nodes(&[4]),
            spared: 0,
        };
        let rules = BTreeMap::from([
            (7, rule(Deed::Lose, Side::Requests, "Fetch")),
            (3, rule(Deed::Hold, Side::Requests, "Fetch")),
            (5, rule(Deed::Lose, Side::Answers, "AlterPartition")),
        ]);
        let crossing = |side, api: ApiKey, from| Crossing {
            side,
            api: api as i16,
            from: NodeName::new(from),
            to: NodeName::new(4),
        };
        let told = |side, api, from| {
            fitting(&rules, crossing(side, api, from)).map(|(id, rule)| (id, rule.deed))
        };
        assert_eq!(told(Side::Requests, ApiKey::Fetch, 2), Some((3, Deed::Hold)));
        assert_eq!(told(Side::Answers, ApiKey::AlterPartition, 1), Some((5, Deed::Lose)));
        assert_eq!(told(Side::Answers, ApiKey::Fetch, 1), None);
        assert_eq!(told(Side::Requests, ApiKey::Fetch, 3), None, "from another node");
        assert_eq!(told(Side::Requests, ApiKey::Metadata, 1), None);
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for message in Message::all() {
            assert_eq!(message.to_string().parse(), Ok(message));
        }
        assert!("fetch".parse::<Message>().unwrap_err().contains("there are any, Fetch,"));
        let refusal: Refusal = "INELIGIBLE_REPLICA".parse().unwrap();
        assert_eq!((refusal.to_string().as_str(), refusal.code()), ("INELIGIBLE_REPLICA", 107));
        assert!("NONE".parse::<Refusal>().is_err());
    }
}
