//! The answer to a request that was never delivered.

use bytes::{Buf, Bytes, BytesMut};
use kafka_protocol::messages::alter_partition_response::{PartitionData, TopicData};
use kafka_protocol::messages::{
    AlterPartitionRequest, AlterPartitionResponse, RequestHeader, ResponseHeader,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request};

/// Answers `frame`, a request for other ISRs, with `code` for each of its partitions.
///
/// # Errors
/// It is no such request.
pub(super) fn alter_partition(frame: &Bytes, code: i16) -> anyhow::Result<Bytes> {
    let mut rest = frame.clone();
    let version = frame.clone().try_get_i32().map(|head| (head & 0xffff) as i16)?;
    let header = RequestHeader::decode(&mut rest, AlterPartitionRequest::header_version(version))?;
    anyhow::ensure!(
        header.request_api_key == AlterPartitionRequest::KEY,
        "request {} is not one for another ISR",
        header.request_api_key
    );
    let request = AlterPartitionRequest::decode(&mut rest, version)?;
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.into_iter().map(|partition| {
            PartitionData::default()
                .with_partition_index(partition.partition_index)
                .with_error_code(code)
        });
        TopicData::default().with_topic_id(topic.topic_id).with_partitions(partitions.collect())
    });
    let answer = AlterPartitionResponse::default().with_topics(topics.collect());
    let mut bytes = BytesMut::new();
    ResponseHeader::default()
        .with_correlation_id(header.correlation_id)
        .encode(&mut bytes, AlterPartitionResponse::header_version(version))?;
    answer.encode(&mut bytes, version)?;
    Ok(bytes.freeze())
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::alter_partition_request as asked;
    use kafka_protocol::messages::{BrokerId, FetchRequest};

    use super::*;

    fn frame<R: Request>(request: &R, version: i16) -> Bytes {
        let mut bytes = BytesMut::new();
        RequestHeader::default()
            .with_request_api_key(R::KEY)
            .with_request_api_version(version)
            .with_correlation_id(9)
            .encode(&mut bytes, R::header_version(version))
            .unwrap();
        request.encode(&mut bytes, version).unwrap();
        bytes.freeze()
    }

    #[test]
    fn every_partition_is_refused_under_the_number_of_the_question() {
        let partition = asked::PartitionData::default().with_partition_index(4);
        let topic = asked::TopicData::default().with_partitions(vec![partition]);
        let request =
            AlterPartitionRequest::default().with_broker_id(BrokerId(1)).with_topics(vec![topic]);
        let mut answer = alter_partition(&frame(&request, 3), 107).unwrap();
        let header =
            ResponseHeader::decode(&mut answer, AlterPartitionResponse::header_version(3)).unwrap();
        assert_eq!(header.correlation_id, 9);
        let answer = AlterPartitionResponse::decode(&mut answer, 3).unwrap();
        let told = &answer.topics[0].partitions[0];
        assert_eq!((told.partition_index, told.error_code, answer.error_code), (4, 107, 0));
    }

    #[test]
    fn what_is_no_such_request_is_an_error() {
        assert!(alter_partition(&frame(&FetchRequest::default(), 12), 107).is_err());
        assert!(alter_partition(&Bytes::from_static(b"\0\x38"), 107).is_err());
    }
}
