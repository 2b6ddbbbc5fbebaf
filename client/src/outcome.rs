//! The one table: what a librdkafka error code says about an operation.
//!
//! Where the code is met decides what it means, so there are three tables in one:
//!
//! - **enqueue**: the client refused a send before it queued it. Nothing can have been sent, so
//!   every code is `fail`.
//! - **delivery**: a delivery report. The code describes the *last* attempt. librdkafka may have
//!   made others before (some without counting them as retries: a leader that moved, a topic
//!   unknown for a moment), one of which may have been appended while its answer was lost. The
//!   message status it keeps does not help: it says "not persisted" of a leader that appended,
//!   lost its leadership and answered `NOT_LEADER_OR_FOLLOWER` (KAFKA-13574). So `fail` is only
//!   what every attempt must have met before the append; the rest, and what nobody has thought
//!   of, is `info`.
//! - **poll**: an error event of a consumer. Either the client gets over it by itself and keeps
//!   its position (the poll read nothing: `fail`), or its position is lost (`info`; the client
//!   is replaced and the process retired, so that what the new one reads is not compared with
//!   the old position).

use history::Kind;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

/// How an operation ended that did not end ok.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// [`Kind::Fail`] or [`Kind::Info`].
    pub kind: Kind,
    /// The error as a history has it: a kebab-case code.
    pub error: String,
}

/// What becomes of a consumer after an error event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aftermath {
    /// It goes on by itself, at its position; or a rebalance that it reports moves it.
    GoesOn,
    /// It no longer stands where it stood: replace it.
    Lost,
}

/// Codes that mean the same, and why.
struct Group<T> {
    means: T,
    #[cfg_attr(not(test), allow(dead_code, reason = "for the reader, and a test"))]
    because: &'static str,
    codes: &'static [Code],
}

/// What a delivery report says. A code that is not here is `info`.
const DELIVERY: &[Group<Kind>] = &[
    Group {
        means: Kind::Fail,
        because: "refused before the append, whatever the attempt: it depends on the rights of \
                  the client, the topic's name, the client's acks or the record itself, and \
                  nothing in a run changes these",
        codes: &[
            Code::TopicAuthorizationFailed,
            Code::ClusterAuthorizationFailed,
            Code::InvalidTopic,
            Code::InvalidRequiredAcks,
            Code::InvalidRecord,
        ],
    },
    Group {
        means: Kind::Info,
        because: "no answer came: the request may have been in flight",
        codes: &[
            Code::MessageTimedOut,
            Code::OperationTimedOut,
            Code::TimedOutQueue,
            Code::RequestTimedOut,
            Code::BrokerTransportFailure,
            Code::NetworkException,
            Code::AllBrokersDown,
            Code::BrokerDestroy,
            Code::DestroyBroker,
            Code::Resolve,
            Code::SSL,
            Code::Authentication,
            Code::SaslAuthenticationFailed,
            Code::UnsupportedSASLMechanism,
            Code::IllegalSASLState,
            Code::Interrupted,
            Code::Partial,
            Code::Underflow,
            Code::BadMessage,
            Code::Unknown,
            Code::Fail,
        ],
    },
    Group {
        means: Kind::Info,
        because: "written, but to too few replicas to be safe",
        codes: &[Code::NotEnoughReplicasAfterAppend],
    },
    Group {
        means: Kind::Info,
        because: "a leader that lost its place may answer so after it appended (KAFKA-13574), and \
                  one that never had it says nothing about an earlier attempt",
        codes: &[
            Code::NotLeaderForPartition,
            Code::LeaderNotAvailable,
            Code::BrokerNotAvailable,
            Code::ReplicaNotAvailable,
            Code::FencedLeaderEpoch,
            Code::UnknownLeaderEpoch,
            Code::NotController,
            Code::StaleControllerEpoch,
            Code::StaleBrokerEpoch,
            Code::ListenerNotFound,
            Code::UnknownBroker,
            Code::KafkaStorageError,
            Code::UnknownTopicOrPartition,
            Code::UnknownTopicId,
            Code::UnknownTopic,
            Code::UnknownPartition,
            Code::RebootstrapRequired,
        ],
    },
    Group {
        means: Kind::Info,
        because: "this attempt was not appended, but what it met changes from attempt to attempt \
                  (the ISR, quotas, clocks, versions of brokers), so an earlier one may have been",
        codes: &[
            Code::NotEnoughReplicas,
            Code::ISRInsufficient,
            Code::InvalidMessage,
            Code::InvalidTimestamp,
            Code::PolicyViolation,
            Code::ThrottlingQuotaExceeded,
            Code::UnsupportedVersion,
            Code::UnsupportedFeature,
            Code::UnsupportedForMessageFormat,
            Code::UnsupportedCompressionType,
            Code::InvalidRequest,
            Code::InvalidConfig,
            Code::OperationNotAttempted,
            Code::SecurityDisabled,
        ],
    },
    Group {
        means: Kind::Info,
        because: "said of the batch, and batches are regrouped between attempts: an earlier, \
                  smaller one may have been appended",
        codes: &[
            Code::MessageSizeTooLarge,
            Code::MessageBatchTooLarge,
            Code::InvalidMessageSize,
            Code::InvalidDifferentRecord,
        ],
    },
    Group {
        means: Kind::Info,
        because: "broker and producer disagree about what was appended",
        codes: &[
            Code::OutOfOrderSequenceNumber,
            Code::DuplicateSequenceNumber,
            Code::UnknownProducerId,
            Code::InvalidProducerEpoch,
            Code::InvalidProducerIdMapping,
            Code::InvalidTransactionalState,
            Code::InvalidTransactionTimeout,
            Code::ConcurrentTransactions,
            Code::TransactionCoordinatorFenced,
            Code::TransactionalIdAuthorizationFailed,
            Code::ProducerFenced,
            Code::Fenced,
            Code::GaplessGuarantee,
            Code::Inconsistent,
            Code::Fatal,
            Code::Retry,
        ],
    },
    Group {
        means: Kind::Info,
        because: "given up by the client; what waits in the queue may wait for its next attempt",
        codes: &[
            Code::PurgeInflight,
            Code::PurgeQueue,
            Code::QueueFull,
            Code::InvalidArgument,
            Code::State,
            Code::CriticalSystemResource,
            Code::BadCompression,
            Code::FileSystem,
            Code::KeySerialization,
            Code::ValueSerialization,
        ],
    },
];

/// What an error event leaves of a consumer. A code that is not here is
/// [`Aftermath::Lost`].
const POLL: &[Group<Aftermath>] = &[
    Group {
        means: Aftermath::GoesOn,
        because: "a connection; the client reconnects",
        codes: &[
            Code::BrokerTransportFailure,
            Code::NetworkException,
            Code::AllBrokersDown,
            Code::BrokerDestroy,
            Code::DestroyBroker,
            Code::Resolve,
            Code::OperationTimedOut,
            Code::TimedOutQueue,
            Code::RequestTimedOut,
            Code::SSL,
            Code::NodeUpdate,
            Code::Interrupted,
        ],
    },
    Group {
        means: Aftermath::GoesOn,
        because: "the leader moves or catches up; the client asks for metadata and fetches again",
        codes: &[
            Code::NotLeaderForPartition,
            Code::LeaderNotAvailable,
            Code::BrokerNotAvailable,
            Code::ReplicaNotAvailable,
            Code::FencedLeaderEpoch,
            Code::UnknownLeaderEpoch,
            Code::OffsetNotAvailable,
            Code::KafkaStorageError,
            Code::ListenerNotFound,
            Code::StaleControllerEpoch,
            Code::StaleBrokerEpoch,
            Code::NotController,
            Code::UnknownTopicOrPartition,
            Code::UnknownTopicId,
            Code::UnknownTopic,
            Code::UnknownPartition,
            Code::UnknownBroker,
            Code::FetchSessionIdNotFound,
            Code::InvalidFetchSessionEpoch,
            Code::ThrottlingQuotaExceeded,
            Code::UnstableOffsetCommit,
            Code::RebootstrapRequired,
            Code::Outdated,
            Code::WaitCache,
            Code::Retry,
            Code::InProgress,
            Code::PreviousInProgress,
        ],
    },
    Group {
        means: Aftermath::GoesOn,
        because: "the group; the client joins again, and says so by a rebalance",
        codes: &[
            Code::CoordinatorLoadInProgress,
            Code::CoordinatorNotAvailable,
            Code::NotCoordinator,
            Code::WaitingForCoordinator,
            Code::RebalanceInProgress,
            Code::IllegalGeneration,
            Code::UnknownMemberId,
            Code::MemberIdRequired,
            Code::PollExceeded,
            Code::AssignmentLost,
            Code::StaleMemberEpoch,
            Code::FencedMemberEpoch,
            Code::UnreleasedInstanceId,
            Code::AssignPartitions,
            Code::RevokePartitions,
            Code::Noop,
        ],
    },
    Group {
        means: Aftermath::GoesOn,
        because: "not an error: the end of the partition as it is now",
        codes: &[Code::PartitionEOF],
    },
    Group {
        means: Aftermath::Lost,
        because: "the log no longer holds the position: it was truncated or deleted. \
                  auto.offset.reset=error makes the client say so and stop, instead of skipping",
        codes: &[
            Code::AutoOffsetReset,
            Code::LogTruncation,
            Code::OffsetOutOfRange,
            Code::NoOffset,
        ],
    },
    Group {
        means: Aftermath::Lost,
        because: "a batch that cannot be read is skipped by the client",
        codes: &[
            Code::BadMessage,
            Code::BadCompression,
            Code::InvalidMessage,
            Code::InvalidMessageSize,
            Code::MessageSizeTooLarge,
            Code::MessageBatchTooLarge,
            Code::InvalidRecord,
            Code::Underflow,
            Code::Partial,
            Code::KeyDeserialization,
            Code::ValueDeserialization,
            Code::UnsupportedFeature,
            Code::UnsupportedVersion,
            Code::UnsupportedCompressionType,
            Code::UnsupportedForMessageFormat,
            Code::NotImplemented,
        ],
    },
    Group {
        means: Aftermath::Lost,
        because: "refused for good, or the client is in a state that only a new one gets out of",
        codes: &[
            Code::Fatal,
            Code::Fenced,
            Code::FencedInstanceId,
            Code::TopicAuthorizationFailed,
            Code::GroupAuthorizationFailed,
            Code::ClusterAuthorizationFailed,
            Code::Authentication,
            Code::SaslAuthenticationFailed,
            Code::UnsupportedSASLMechanism,
            Code::IllegalSASLState,
            Code::SecurityDisabled,
            Code::InconsistentGroupProtocol,
            Code::InvalidGroupId,
            Code::InvalidSessionTimeout,
            Code::InvalidCommitOffsetSize,
            Code::OffsetMetadataTooLarge,
            Code::GroupMaxSizeReached,
            Code::GroupIdNotFound,
            Code::UnsupportedAssignor,
            Code::UnknownGroup,
            Code::UnknownProtocol,
            Code::InvalidTopic,
            Code::InvalidRequest,
            Code::InvalidArgument,
            Code::InvalidConfig,
            Code::PolicyViolation,
            Code::NotConfigured,
            Code::ExistingSubscription,
            Code::Conflict,
            Code::State,
            Code::CriticalSystemResource,
            Code::FileSystem,
            Code::Fail,
            Code::Unknown,
            Code::Inconsistent,
            Code::ReadOnly,
            Code::NoEnt,
            Code::InvalidType,
            Code::Application,
        ],
    },
];

fn lookup<T: Copy>(table: &[Group<T>], code: Code) -> Option<T> {
    table.iter().find(|group| group.codes.contains(&code)).map(|group| group.means)
}

/// A send that the client refused to queue: it certainly did not happen.
pub fn of_enqueue(error: &KafkaError) -> Outcome {
    Outcome { kind: Kind::Fail, error: error_code(error) }
}

/// A send whose delivery report carries `error`.
pub fn of_delivery(error: &KafkaError) -> Outcome {
    let kind =
        error.rdkafka_error_code().and_then(|code| lookup(DELIVERY, code)).unwrap_or(Kind::Info);
    Outcome { kind, error: error_code(error) }
}

/// What a consumer's error event leaves of it.
pub fn of_poll(error: &KafkaError) -> Aftermath {
    if matches!(error, KafkaError::MessageConsumptionFatal(_)) {
        return Aftermath::Lost;
    }
    error.rdkafka_error_code().and_then(|code| lookup(POLL, code)).unwrap_or(Aftermath::Lost)
}

/// The kebab-case code under which a history has `error`.
pub fn error_code(error: &KafkaError) -> String {
    if let Some(code) = error.rdkafka_error_code() {
        return kebab(&format!("{code:?}"));
    }
    let name = match error {
        KafkaError::Canceled => "canceled",
        KafkaError::ClientConfig(..) => "client-config",
        KafkaError::ClientCreation(_) => "client-creation",
        KafkaError::Nul(_) => "nul-byte",
        KafkaError::PartitionEOF(_) => "partition-eof",
        KafkaError::Subscription(_) => "subscription",
        _ => "client-error",
    };
    name.to_owned()
}

/// The code, and words where librdkafka gave some that the code does not say.
pub fn error_text(error: &KafkaError) -> String {
    let code = error_code(error);
    if error.rdkafka_error_code().is_some() { code } else { format!("{code}: {error}") }
}

/// `MessageTimedOut` → `message-timed-out`, `PartitionEOF` → `partition-eof`.
fn kebab(camel: &str) -> String {
    let letters: Vec<char> = camel.chars().collect();
    let mut text = String::with_capacity(camel.len() + 8);
    for (i, letter) in letters.iter().enumerate() {
        let after_lower = i > 0 && !letters[i - 1].is_ascii_uppercase();
        let before_lower = letters.get(i + 1).is_some_and(char::is_ascii_lowercase);
        if letter.is_ascii_uppercase() && i > 0 && (after_lower || before_lower) {
            text.push('-');
        }
        text.push(letter.to_ascii_lowercase());
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rdkafka::types::RDKafkaRespErr;

    use super::*;

    /// Codes that no send, poll or metadata request can meet: success and bounds, what only
    /// administration, transactions, elections or tokens meet.
    const NOT_MET: &[&str] = &[
        "begin",
        "end",
        "end-all",
        "no-error",
        "topic-already-exists",
        "invalid-partitions",
        "invalid-replication-factor",
        "invalid-replica-assignment",
        "log-dir-not-found",
        "reassignment-in-progress",
        "delegation-token-auth-disabled",
        "delegation-token-not-found",
        "delegation-token-owner-mismatch",
        "delegation-token-request-not-allowed",
        "delegation-token-authorization-failed",
        "delegation-token-expired",
        "invalid-principal-type",
        "non-empty-group",
        "topic-deletion-disabled",
        "preferred-leader-not-available",
        "eligible-leaders-not-available",
        "election-not-needed",
        "no-reassignment-in-progress",
        "group-subscribed-to-topic",
        "resource-not-found",
        "duplicate-resource",
        "unacceptable-credential",
        "inconsistent-voter-set",
        "invalid-update-version",
        "feature-update-failed",
        "principal-deserialization-failure",
        "unknown-subscription-id",
        "telemetry-too-large",
    ];

    fn every_code() -> Vec<Code> {
        (-200..=1000)
            .filter_map(|number| RDKafkaRespErr::try_from(number).ok())
            .map(Code::from)
            .collect()
    }

    fn name(code: Code) -> String {
        kebab(&format!("{code:?}"))
    }

    fn listed<T>(table: &[Group<T>]) -> Vec<String> {
        table.iter().flat_map(|group| group.codes).map(|code| name(*code)).collect()
    }

    #[test]
    fn every_code_is_classified_and_none_twice() {
        assert!(every_code().len() > 150, "{}", every_code().len());
        let (delivery, poll) = (listed(DELIVERY), listed(POLL));
        for list in [&delivery, &poll] {
            assert_eq!(
                list.iter().collect::<BTreeSet<_>>().len(),
                list.len(),
                "a code stands in two groups: {list:?}"
            );
        }
        let missing: Vec<String> = every_code()
            .into_iter()
            .map(name)
            .filter(|code| !delivery.contains(code) && !poll.contains(code))
            .filter(|code| !NOT_MET.contains(&code.as_str()))
            .collect();
        assert_eq!(missing, [] as [String; 0]);
        for code in NOT_MET {
            assert!(!delivery.contains(&(*code).to_owned()), "{code}");
            assert!(!poll.contains(&(*code).to_owned()), "{code}");
        }
    }

    #[test]
    fn each_group_says_why() {
        assert!(DELIVERY.iter().all(|group| group.because.len() > 10));
        assert!(POLL.iter().all(|group| group.because.len() > 10));
    }

    #[test]
    fn only_these_delivery_reports_exclude_an_append() {
        let fails: Vec<String> = every_code()
            .into_iter()
            .filter(|code| of_delivery(&KafkaError::MessageProduction(*code)).kind == Kind::Fail)
            .map(name)
            .collect();
        assert_eq!(
            fails,
            [
                "invalid-topic",
                "invalid-required-acks",
                "topic-authorization-failed",
                "cluster-authorization-failed",
                "invalid-record",
            ]
        );
    }

    #[test]
    fn what_the_spec_calls_indeterminate_is_info() {
        for code in [
            Code::MessageTimedOut,
            Code::BrokerTransportFailure,
            Code::NotLeaderForPartition,
            Code::NotEnoughReplicas,
            Code::NotEnoughReplicasAfterAppend,
            Code::OutOfOrderSequenceNumber,
            Code::PurgeInflight,
            Code::PurgeQueue,
        ] {
            let outcome = of_delivery(&KafkaError::MessageProduction(code));
            assert_eq!(outcome.kind, Kind::Info, "{code:?}");
        }
        assert_eq!(of_delivery(&KafkaError::Canceled).kind, Kind::Info);
    }

    #[test]
    fn what_was_never_queued_failed() {
        for code in every_code() {
            let outcome = of_enqueue(&KafkaError::MessageProduction(code));
            assert_eq!(outcome.kind, Kind::Fail, "{code:?}");
        }
    }

    #[test]
    fn a_consumer_survives_outages_but_not_truncation() {
        let after = |code| of_poll(&KafkaError::MessageConsumption(code));
        assert_eq!(after(Code::AllBrokersDown), Aftermath::GoesOn);
        assert_eq!(after(Code::NotLeaderForPartition), Aftermath::GoesOn);
        assert_eq!(after(Code::AutoOffsetReset), Aftermath::Lost);
        assert_eq!(after(Code::BadMessage), Aftermath::Lost);
        let fatal = KafkaError::MessageConsumptionFatal(Code::AllBrokersDown);
        assert_eq!(of_poll(&fatal), Aftermath::Lost);
    }

    #[test]
    fn codes_are_kebab_case() {
        assert_eq!(name(Code::MessageTimedOut), "message-timed-out");
        assert_eq!(name(Code::PartitionEOF), "partition-eof");
        assert_eq!(name(Code::SSL), "ssl");
        assert_eq!(name(Code::ISRInsufficient), "isr-insufficient");
        assert_eq!(name(Code::IllegalSASLState), "illegal-sasl-state");
        assert_eq!(error_code(&KafkaError::Canceled), "canceled");
    }
}
