//! Whether a request's body can be decoded safely.
//!
//! The library reserves memory for as many elements as an array claims before it reads the first,
//! so a frame of 20 bytes can ask for gigabytes and end the process. [`check`] walks the body along
//! the table in [`shapes`] first. It touches lengths and counts only, never records.
//!
//! What passes holds these:
//! - every length fits in what is left, and is null only where the version allows it;
//! - an array's elements, each at its smallest, fit in what is left;
//! - all arrays and unknown tagged fields of a request have at most [`MOST_ELEMENTS`] elements;
//! - in memory the request takes at most [`MOST_DECODED_BYTES`], and at most
//!   [`DECODED_BYTES_PER_BYTE`] times its length and [`DECODED_BYTES_FOR_ANY`];
//! - a tagged field takes as many bytes as it says. The library does not look at what it says.
//!
//! Bytes after the body are no error: Kafka does not look at them either.
//! Text may still not be UTF-8; the library says so with an error and no harm.

use super::field::{Field, Request, Value};
use super::reader::{Reader, What};
use super::shapes;

/// The most elements of a request: of all arrays, and unknown tagged fields.
pub const MOST_ELEMENTS: usize = 1_000_000;
/// The most memory that a decoded request takes beside its frame, in bytes.
pub const MOST_DECODED_BYTES: usize = 64 << 20;
/// How much more than its length a request may take in memory. Empty names in a long array come
/// near it, real ones stay far below.
pub const DECODED_BYTES_PER_BYTE: usize = 32;
/// What a request may take in memory however short it is, in bytes.
pub const DECODED_BYTES_FOR_ANY: usize = 64 << 10;

/// What an allocation costs beside its content, in bytes.
const ALLOCATION_BYTES: usize = 32;
/// What the library's first unknown tagged field of a struct costs: a node of the map, in bytes.
const FIRST_TAG_BYTES: usize = 416;
/// What each further one costs at most, in a map whose nodes are half full, in bytes.
const MORE_TAG_BYTES: usize = 104;

/// Why a body is not decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// The broker does not serve the API.
    #[error("API key {0} is not served")]
    UnknownApi(i16),
    /// The broker serves the API, but not in this version. `ApiVersions` is answered in version 0
    /// all the same (KIP-511).
    #[error("{api} v{api_version} is not served: versions {oldest} to {newest} are")]
    UnsupportedVersion {
        /// The API's name.
        api: &'static str,
        /// The version asked for.
        api_version: i16,
        /// The first version served.
        oldest: i16,
        /// The last version served.
        newest: i16,
    },
    /// The body is broken, or asks for more than the broker gives. The connection is of no more
    /// use.
    #[error(transparent)]
    Malformed(#[from] Box<Malformed>),
}

/// Where a body is broken, and how.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{api} v{api_version}: {path} at byte {position} {what}")]
pub struct Malformed {
    /// The API's name.
    pub api: &'static str,
    /// The version.
    pub api_version: i16,
    /// The field, as in `topics[3].partitions[0].records`.
    pub path: String,
    /// Where the value begins in the body, in bytes.
    pub position: usize,
    /// What is wrong.
    pub what: What,
}

/// What a body comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measure {
    /// How much of the frame it uses, in bytes.
    pub used_bytes: usize,
    /// Elements of all arrays, and unknown tagged fields.
    pub elements: usize,
    /// At least what decoding it allocates, in bytes. Text and records stay in the frame.
    pub decoded_bytes: usize,
}

/// Whether the library can decode `body`, what follows the request header, without harm.
pub fn check(api_key: i16, api_version: i16, body: &[u8]) -> Result<(), ShapeError> {
    measure(api_key, api_version, body).map(|_| ())
}

/// [`check`], and what the body comes to.
pub fn measure(api_key: i16, api_version: i16, body: &[u8]) -> Result<Measure, ShapeError> {
    let request = shapes::request(api_key).ok_or(ShapeError::UnknownApi(api_key))?;
    if !request.has(api_version) {
        return Err(ShapeError::UnsupportedVersion {
            api: request.name,
            api_version,
            oldest: request.oldest,
            newest: request.newest,
        });
    }
    let mut walk = Walk::new(request, api_version, body);
    match walk.fields(request.fields) {
        Ok(()) => Ok(walk.measure()),
        Err(broken) => Err(Box::new(broken.malformed(request, api_version)).into()),
    }
}

/// A step towards the field that is broken.
#[derive(Clone, Copy, Debug)]
enum Step {
    Field(&'static str),
    Element(usize),
    UnknownTag(u32),
}

/// An error on its way up; the path grows from the inside out.
#[derive(Debug)]
struct Broken {
    what: What,
    position: usize,
    path: Vec<Step>,
}

impl Broken {
    const fn new(what: What, position: usize) -> Self {
        Self { what, position, path: Vec::new() }
    }

    fn under(mut self, step: Step) -> Self {
        self.path.push(step);
        self
    }

    fn malformed(&self, request: &Request, api_version: i16) -> Malformed {
        let mut path = String::new();
        for step in self.path.iter().rev() {
            match step {
                Step::Field(name) if path.is_empty() => path.push_str(name),
                Step::Field(name) => path.extend([".", name]),
                Step::Element(index) => path.extend(["[", &index.to_string(), "]"]),
                Step::UnknownTag(tag) => path.extend(["<tag ", &tag.to_string(), ">"]),
            }
        }
        let (api, position) = (request.name, self.position);
        Malformed { api, api_version, path, position, what: self.what }
    }
}

type Walked<T = ()> = Result<T, Broken>;

/// A walk through a body. It goes as deep as the table does.
struct Walk<'a> {
    reader: Reader<'a>,
    version: i16,
    flexible: bool,
    elements: usize,
    decoded_bytes: usize,
    most_decoded_bytes: usize,
}

impl<'a> Walk<'a> {
    fn new(request: &Request, version: i16, body: &'a [u8]) -> Self {
        let in_proportion = body.len().saturating_mul(DECODED_BYTES_PER_BYTE);
        Self {
            reader: Reader::new(body),
            version,
            flexible: request.is_flexible(version),
            elements: 0,
            decoded_bytes: 0,
            most_decoded_bytes: in_proportion
                .saturating_add(DECODED_BYTES_FOR_ANY)
                .min(MOST_DECODED_BYTES),
        }
    }

    fn measure(&self) -> Measure {
        Measure {
            used_bytes: self.reader.position(),
            elements: self.elements,
            decoded_bytes: self.decoded_bytes,
        }
    }

    /// Reads with `read`; an error is placed where the reading began.
    fn read<T>(&mut self, read: impl FnOnce(&mut Reader<'a>) -> Result<T, What>) -> Walked<T> {
        let position = self.reader.position();
        read(&mut self.reader).map_err(|what| Broken::new(what, position))
    }

    /// The fields of a struct: those with a place in their order, then the tagged ones.
    fn fields(&mut self, fields: &'static [Field]) -> Walked {
        for field in fields {
            if field.tag.is_none() && field.is_in(self.version) {
                self.field(field).map_err(|broken| broken.under(Step::Field(field.name)))?;
            }
        }
        if self.flexible { self.tagged_fields(fields) } else { Ok(()) }
    }

    fn field(&mut self, field: &Field) -> Walked {
        let nullable = field.is_nullable_in(self.version);
        match field.value {
            value if field.is_array => self.array(value, nullable),
            Value::Struct(fields) if nullable => self.nullable_struct(fields),
            value => self.value(value, nullable),
        }
    }

    fn value(&mut self, value: Value, nullable: bool) -> Walked {
        let flexible = self.flexible;
        match value {
            Value::Boolean => self.read(|reader| reader.take(1).map(|_| ())),
            Value::Fixed(bytes) => self.read(|reader| reader.take(bytes).map(|_| ())),
            Value::String => self.read(|reader| {
                let length = reader.string_length(flexible)?;
                skip(reader, length, nullable)
            }),
            Value::Bytes => self.read(|reader| {
                let length = reader.length(flexible)?;
                skip(reader, length, nullable)
            }),
            Value::Struct(fields) => self.fields(fields),
        }
    }

    /// A struct behind a mark: 1 is "here", -1 is null. Kafka takes any number below 0 for null
    /// and any other for "here", the library takes all but 1 for null: only what both read alike
    /// passes.
    fn nullable_struct(&mut self, fields: &'static [Field]) -> Walked {
        let here = self.read(|reader| match reader.int8()? {
            1 => Ok(true),
            mark if mark < 0 => Ok(false),
            mark => Err(What::Mark(mark)),
        })?;
        if here { self.fields(fields) } else { Ok(()) }
    }

    fn array(&mut self, value: Value, nullable: bool) -> Walked {
        let position = self.reader.position();
        let flexible = self.flexible;
        let Some(claimed) = self.read(|reader| reader.length(flexible))? else {
            return if nullable { Ok(()) } else { Err(Broken::new(What::Null, position)) };
        };
        if claimed == 0 {
            return Ok(());
        }
        let left = self.reader.left();
        let least_bytes = value.least_bytes(self.version, flexible).max(1);
        if claimed > left / least_bytes {
            return Err(Broken::new(What::Elements { claimed, least_bytes, left }, position));
        }
        let memory = claimed.saturating_mul(value.decoded_bytes());
        self.charge(claimed, memory.saturating_add(ALLOCATION_BYTES), position)?;
        match value {
            Value::Boolean | Value::Fixed(_) => {
                self.read(|reader| reader.take(claimed.saturating_mul(least_bytes)).map(|_| ()))
            }
            Value::String | Value::Bytes | Value::Struct(_) => {
                for index in 0..claimed {
                    self.value(value, false)
                        .map_err(|broken| broken.under(Step::Element(index)))?;
                }
                Ok(())
            }
        }
    }

    /// Counts what the library would allocate.
    fn charge(&mut self, elements: usize, decoded_bytes: usize, position: usize) -> Walked {
        self.elements = self.elements.saturating_add(elements);
        self.decoded_bytes = self.decoded_bytes.saturating_add(decoded_bytes);
        let what = if self.elements > MOST_ELEMENTS {
            What::TooManyElements { elements: self.elements, most: MOST_ELEMENTS }
        } else if self.decoded_bytes > self.most_decoded_bytes {
            let most = self.most_decoded_bytes;
            What::TooMuchMemory { decoded_bytes: self.decoded_bytes, most }
        } else {
            return Ok(());
        };
        Err(Broken::new(what, position))
    }

    /// The tagged fields at the end of a struct: those that the table knows, and others, which the
    /// library keeps in a map.
    fn tagged_fields(&mut self, fields: &'static [Field]) -> Walked {
        let count = self.read(Reader::count)?;
        let mut tag_bytes = FIRST_TAG_BYTES;
        for _ in 0..count {
            let position = self.reader.position();
            let tag = self.read(Reader::varint)?;
            let known = fields.iter().find(|field| field.tag == Some(tag));
            let step = known.map_or(Step::UnknownTag(tag), |field| Step::Field(field.name));
            let walked = match known {
                Some(field) => self.known_tag(field, position),
                None => self.unknown_tag(tag_bytes, position),
            };
            walked.map_err(|broken| broken.under(step))?;
            if known.is_none() {
                tag_bytes = MORE_TAG_BYTES;
            }
        }
        Ok(())
    }

    fn known_tag(&mut self, field: &Field, position: usize) -> Walked {
        if !field.is_in(self.version) {
            return Err(Broken::new(What::TagOfOtherVersion, position));
        }
        let said = self.read(Reader::count)?;
        let start = self.reader.position();
        self.field(field)?;
        let takes = self.reader.position().saturating_sub(start);
        if takes == said {
            Ok(())
        } else {
            Err(Broken::new(What::TagLength { said, takes }, position))
        }
    }

    fn unknown_tag(&mut self, decoded_bytes: usize, position: usize) -> Walked {
        self.read(|reader| {
            let length = reader.count()?;
            skip(reader, Some(length), false)
        })?;
        self.charge(1, decoded_bytes, position)
    }
}

/// Passes over what a length announces.
fn skip(reader: &mut Reader<'_>, length: Option<usize>, nullable: bool) -> Result<(), What> {
    match length {
        Some(length) => reader.take(length).map(|_| ()),
        None if nullable => Ok(()),
        None => Err(What::Null),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
    use kafka_protocol::messages::incremental_alter_configs_request::{
        AlterConfigsResource, AlterableConfig,
    };
    use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
    use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
    use kafka_protocol::messages::{
        DeleteRecordsRequest, FetchRequest, IncrementalAlterConfigsRequest, MetadataRequest,
        ProduceRequest, TopicName,
    };
    use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};

    use super::*;

    const PRODUCE: i16 = 0;
    const FETCH: i16 = 1;
    const METADATA: i16 = 3;
    const DELETE_RECORDS: i16 = 21;
    const DELETE_GROUPS: i16 = 42;
    const DESCRIBE_TOPIC_PARTITIONS: i16 = 75;

    fn encoded(request: &impl Encodable, version: i16) -> Vec<u8> {
        let mut body = Vec::new();
        request.encode(&mut body, version).unwrap();
        body
    }

    fn what(api_key: i16, version: i16, body: &[u8]) -> What {
        match check(api_key, version, body) {
            Err(ShapeError::Malformed(malformed)) => malformed.what,
            other => panic!("{other:?}"),
        }
    }

    fn topic_name(number: usize) -> TopicName {
        StrBytes::from_string(format!("topic-{number}")).into()
    }

    fn produce() -> ProduceRequest {
        let partition = |index, records| {
            PartitionProduceData::default().with_index(index).with_records(records)
        };
        let topic = TopicProduceData::default().with_name(topic_name(1)).with_partition_data(vec![
            partition(0, Some(Bytes::from_static(b"not looked at"))),
            partition(1, None),
        ]);
        ProduceRequest::default().with_acks(-1).with_topic_data(vec![topic])
    }

    #[test]
    fn a_frame_of_a_few_bytes_cannot_claim_two_billion_topics() {
        let body = [0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0];
        assert_eq!(
            check(METADATA, 1, &body).unwrap_err().to_string(),
            "Metadata v1: topics at byte 0 claims 2147483647 elements of at least 2 bytes, \
             4 bytes are left"
        );
        let compact = [0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0];
        assert_eq!(
            what(METADATA, 12, &compact),
            What::Elements { claimed: 4_294_967_294, least_bytes: 18, left: 3 }
        );
    }

    #[test]
    fn an_error_says_which_element_and_where() {
        let mut body = encoded(&produce(), 3);
        let records = body.windows(4).position(|window| window == [0, 0, 0, 13]).unwrap();
        body[records] = 0x80;
        assert_eq!(
            check(PRODUCE, 3, &body).unwrap_err().to_string(),
            format!(
                "Produce v3: topic_data[0].partition_data[0].records at byte {records} \
                 has the negative length -2147483635"
            )
        );
    }

    #[test]
    fn what_is_not_served_is_told_from_what_is_broken() {
        assert_eq!(check(7, 0, &[]), Err(ShapeError::UnknownApi(7)));
        assert_eq!(check(-1, 0, &[]), Err(ShapeError::UnknownApi(-1)));
        let error = check(FETCH, 3, &[]).unwrap_err();
        assert_eq!(error.to_string(), "Fetch v3 is not served: versions 4 to 18 are");
        assert!(matches!(check(18, 99, &[]), Err(ShapeError::UnsupportedVersion { .. })));
        assert!(matches!(check(18, -1, &[]), Err(ShapeError::UnsupportedVersion { .. })));
    }

    #[test]
    fn null_is_accepted_only_in_versions_that_have_it() {
        let null_topics = [0xff; 4];
        assert_eq!(what(METADATA, 0, &null_topics), What::Null);
        assert_eq!(check(METADATA, 1, &null_topics), Ok(()));
        let null_group = [2, 0, 0];
        assert_eq!(what(DELETE_GROUPS, 2, &null_group), What::Null);
    }

    #[test]
    fn bytes_after_the_body_are_left_alone() {
        let mut body = encoded(&produce(), 9);
        let used_bytes = body.len();
        body.extend([1, 2, 3]);
        assert_eq!(measure(PRODUCE, 9, &body).unwrap().used_bytes, used_bytes);
    }

    #[test]
    fn a_tagged_field_is_as_long_as_it_says_and_of_its_version() {
        let with_cluster = FetchRequest::default().with_cluster_id(Some("cluster".into()));
        let body = encoded(&with_cluster, 12);
        assert_eq!(check(FETCH, 12, &body), Ok(()));
        let said = body.windows(3).position(|window| window == [0, 8, 8]).unwrap() + 1;
        for length in [7, 9] {
            let mut lying = body.clone();
            lying[said] = length;
            let says = What::TagLength { said: length.into(), takes: 8 };
            assert_eq!(what(FETCH, 12, &lying), says);
        }
        let mut of_version_15 = body;
        of_version_15[said - 1] = 1;
        assert_eq!(what(FETCH, 12, &of_version_15), What::TagOfOtherVersion);
    }

    #[test]
    fn a_nullable_struct_is_marked_in_a_way_that_all_read_alike() {
        let body = |mark: u8| [1, 0, 0, 0, 9, mark, 0];
        assert_eq!(check(DESCRIBE_TOPIC_PARTITIONS, 0, &body(0xff)), Ok(()));
        assert_eq!(what(DESCRIBE_TOPIC_PARTITIONS, 0, &body(0)), What::Mark(0));
        assert_eq!(what(DESCRIBE_TOPIC_PARTITIONS, 0, &body(2)), What::Mark(2));
        assert_eq!(what(DESCRIBE_TOPIC_PARTITIONS, 0, &body(1)), What::Null);
    }

    #[test]
    fn elements_are_limited_however_long_the_frame_is() {
        let names = |count: u32| {
            let mut body = vec![0, 0, 0, 0];
            body[..4].copy_from_slice(&count.to_be_bytes());
            body.resize(4 + 2 * count as usize, 0);
            body
        };
        assert_eq!(measure(DELETE_GROUPS, 0, &names(1_000_000)).unwrap().elements, MOST_ELEMENTS);
        assert!(matches!(
            what(DELETE_GROUPS, 0, &names(1_000_001)),
            What::TooManyElements { elements: 1_000_001, .. }
        ));
    }

    #[test]
    fn memory_is_limited_in_proportion_to_the_frame() {
        // an empty name, no partitions, an unknown tagged field without content: the library
        // takes a hundred bytes for each byte of these
        const TOPICS: usize = 1 << 14;
        let mut body = vec![0x81, 0x80, 0x01];
        body.extend([1, 1, 1, 0x64, 0].repeat(TOPICS));
        body.extend([0, 0, 0, 0, 0]);
        let decoded = DeleteRecordsRequest::decode(&mut Bytes::from(body.clone()), 2).unwrap();
        assert_eq!(decoded.topics.len(), TOPICS);
        let what = what(DELETE_RECORDS, 2, &body);
        assert!(matches!(what, What::TooMuchMemory { .. }), "{what}");
    }

    #[test]
    fn long_honest_requests_pass() {
        let partition = |index| FetchPartition::default().with_partition(index);
        let topics = (0..20_000).map(|number| {
            FetchTopic::default()
                .with_topic(topic_name(number))
                .with_partitions((0..5).map(partition).collect())
        });
        let fetch = FetchRequest::default().with_topics(topics.collect());
        for version in [4, 12] {
            let measured = measure(FETCH, version, &encoded(&fetch, version)).unwrap();
            assert_eq!(measured.elements, 120_000);
        }
        let topic = |number| MetadataRequestTopic::default().with_name(Some(topic_name(number)));
        let topics = (0..100_000).map(topic).collect();
        let metadata = MetadataRequest::default().with_topics(Some(topics));
        assert_eq!(check(METADATA, 13, &encoded(&metadata, 13)), Ok(()));
        let setting = AlterableConfig::default().with_name("retention.ms".into());
        let resource = |number| {
            AlterConfigsResource::default()
                .with_resource_name(topic_name(number).0)
                .with_configs(vec![setting.clone()])
        };
        let alter = IncrementalAlterConfigsRequest::default()
            .with_resources((0..50_000).map(resource).collect());
        assert_eq!(check(44, 1, &encoded(&alter, 1)), Ok(()));
    }

    #[test]
    fn a_walk_goes_no_deeper_than_the_table() {
        fn depth(fields: &[Field]) -> usize {
            let inside = fields.iter().map(|field| match field.value {
                Value::Struct(inner) => 1 + depth(inner),
                _ => 0,
            });
            inside.max().unwrap_or_default()
        }
        let deepest = shapes::REQUESTS.iter().map(|request| depth(request.fields)).max();
        assert_eq!(deepest, Some(3));
    }
}
