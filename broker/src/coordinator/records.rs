//! What lies in the topic of groups, in Kafka's formats, so that Kafka's tools read it.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::Committed;
use super::group::{Group, Member};

const OFFSET_KEY: i16 = 1;
const GROUP_KEY: i16 = 2;
const OFFSET_VALUE: i16 = 3;
const GROUP_VALUE: i16 = 3;

/// What a record is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    /// How far a group is in a partition.
    Offset {
        /// Which group.
        group: String,
        /// Which topic.
        topic: String,
        /// Which partition.
        partition: i32,
    },
    /// A group.
    Group(String),
    /// Something that this version does not know.
    Unknown(i16),
}

/// A group as it was stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredGroup {
    /// `consumer`.
    pub protocol_type: String,
    /// Its generation.
    pub generation: i32,
    /// How its members share.
    pub protocol: Option<String>,
    /// Who says so.
    pub leader: Option<String>,
    /// Its members.
    pub members: Vec<StoredMember>,
}

/// A member as it was stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredMember {
    /// Its id.
    pub id: String,
    /// What it calls itself over restarts.
    pub instance_id: Option<String>,
    /// What its client calls itself.
    pub client_id: String,
    /// From where.
    pub client_host: String,
    /// How long it may take to rejoin.
    pub rebalance_timeout_ms: i32,
    /// How long it may be silent.
    pub session_timeout_ms: i32,
    /// What it wants.
    pub subscription: Bytes,
    /// What it got.
    pub assignment: Bytes,
}

fn put_text(buffer: &mut BytesMut, text: &str) {
    // Names are limited to far less before they come here.
    let length = i16::try_from(text.len()).unwrap_or(i16::MAX);
    buffer.put_i16(length);
    buffer.put_slice(&text.as_bytes()[..usize::try_from(length).unwrap_or(0)]);
}

fn put_nullable(buffer: &mut BytesMut, text: Option<&str>) {
    match text {
        Some(text) => put_text(buffer, text),
        None => buffer.put_i16(-1),
    }
}

fn put_bytes(buffer: &mut BytesMut, bytes: &Bytes) {
    buffer.put_i32(i32::try_from(bytes.len()).unwrap_or(i32::MAX));
    buffer.put_slice(bytes);
}

fn text(bytes: &mut Bytes) -> Option<String> {
    nullable(bytes)?
}

#[expect(clippy::option_option, reason = "cut, and null")]
fn nullable(bytes: &mut Bytes) -> Option<Option<String>> {
    let length = bytes.try_get_i16().ok()?;
    let Ok(length) = usize::try_from(length) else { return Some(None) };
    if length > bytes.len() {
        return None;
    }
    String::from_utf8(bytes.split_to(length).to_vec()).ok().map(Some)
}

fn block(bytes: &mut Bytes) -> Option<Bytes> {
    let length = bytes.try_get_i32().ok()?;
    let Ok(length) = usize::try_from(length) else { return Some(Bytes::new()) };
    (length <= bytes.len()).then(|| bytes.split_to(length))
}

/// The key of an offset (OffsetCommitKey v1).
pub fn offset_key(group: &str, topic: &str, partition: i32) -> Bytes {
    let mut key = BytesMut::new();
    key.put_i16(OFFSET_KEY);
    put_text(&mut key, group);
    put_text(&mut key, topic);
    key.put_i32(partition);
    key.freeze()
}

/// An offset (OffsetCommitValue v3).
pub fn offset_value(committed: &Committed) -> Bytes {
    let mut value = BytesMut::new();
    value.put_i16(OFFSET_VALUE);
    value.put_i64(committed.offset);
    value.put_i32(committed.leader_epoch);
    put_text(&mut value, &committed.metadata);
    value.put_i64(committed.timestamp_ms);
    value.freeze()
}

/// The key of a group (GroupMetadataKey v2).
pub fn group_key(group: &str) -> Bytes {
    let mut key = BytesMut::new();
    key.put_i16(GROUP_KEY);
    put_text(&mut key, group);
    key.freeze()
}

/// A group (GroupMetadataValue v3), with the assignments that its leader gives.
pub fn group_value(group: &Group, assignments: &[(String, Bytes)], now_ms: i64) -> Bytes {
    let mut value = BytesMut::new();
    value.put_i16(GROUP_VALUE);
    put_text(&mut value, &group.protocol_type);
    value.put_i32(group.generation);
    put_nullable(&mut value, group.protocol.as_deref());
    put_nullable(&mut value, group.leader.as_deref());
    value.put_i64(now_ms);
    value.put_i32(i32::try_from(group.members.len()).unwrap_or(i32::MAX));
    for member in group.members.values() {
        put_member(&mut value, member, group.protocol.as_deref(), assignments);
    }
    value.freeze()
}

fn put_member(
    value: &mut BytesMut,
    member: &Member,
    protocol: Option<&str>,
    assignments: &[(String, Bytes)],
) {
    let millis =
        |duration: std::time::Duration| i32::try_from(duration.as_millis()).unwrap_or(i32::MAX);
    let assignment = assignments.iter().find(|(id, _)| *id == member.id).map(|(_, bytes)| bytes);
    put_text(value, &member.id);
    put_nullable(value, member.instance_id.as_deref());
    put_text(value, &member.client_id);
    put_text(value, &member.client_host);
    value.put_i32(millis(member.rebalance_timeout));
    value.put_i32(millis(member.session_timeout));
    put_bytes(value, &member.subscription(protocol));
    put_bytes(value, &assignment.cloned().unwrap_or_default());
}

/// What a record is about; `None` where that cannot be read.
pub fn read_key(mut key: Bytes) -> Option<Key> {
    match key.try_get_i16().ok()? {
        0 | OFFSET_KEY => Some(Key::Offset {
            group: text(&mut key)?,
            topic: text(&mut key)?,
            partition: key.try_get_i32().ok()?,
        }),
        GROUP_KEY => Some(Key::Group(text(&mut key)?)),
        other => Some(Key::Unknown(other)),
    }
}

/// An offset of any version up to 3.
pub fn read_offset(mut value: Bytes) -> Option<Committed> {
    let version = value.try_get_i16().ok()?;
    let offset = value.try_get_i64().ok()?;
    let leader_epoch = if version >= 3 { value.try_get_i32().ok()? } else { -1 };
    let metadata = text(&mut value)?;
    let timestamp_ms = value.try_get_i64().ok()?;
    (0..=3).contains(&version).then_some(Committed { offset, leader_epoch, metadata, timestamp_ms })
}

/// A group of any version up to 3.
pub fn read_group(mut value: Bytes) -> Option<StoredGroup> {
    let version = value.try_get_i16().ok().filter(|version| (0..=3).contains(version))?;
    let mut group = StoredGroup {
        protocol_type: text(&mut value)?,
        generation: value.try_get_i32().ok()?,
        protocol: nullable(&mut value)?,
        leader: nullable(&mut value)?,
        members: Vec::new(),
    };
    if version >= 2 {
        value.try_get_i64().ok()?;
    }
    for _ in 0..value.try_get_i32().ok()? {
        let id = text(&mut value)?;
        let instance_id = if version >= 3 { nullable(&mut value)? } else { None };
        let (client_id, client_host) = (text(&mut value)?, text(&mut value)?);
        let rebalance = if version >= 1 { Some(value.try_get_i32().ok()?) } else { None };
        let session_timeout_ms = value.try_get_i32().ok()?;
        group.members.push(StoredMember {
            id,
            instance_id,
            client_id,
            client_host,
            rebalance_timeout_ms: rebalance.unwrap_or(session_timeout_ms),
            session_timeout_ms,
            subscription: block(&mut value)?,
            assignment: block(&mut value)?,
        });
    }
    Some(group)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn records_have_kafkas_bytes() {
        let key = offset_key("g", "t", 3);
        assert_eq!(&key[..], [0, 1, 0, 1, b'g', 0, 1, b't', 0, 0, 0, 3]);
        let committed =
            Committed { offset: 5, leader_epoch: 2, metadata: "m".to_owned(), timestamp_ms: 9 };
        let value = offset_value(&committed);
        assert_eq!(
            &value[..],
            [0, 3, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 2, 0, 1, b'm', 0, 0, 0, 0, 0, 0, 0, 9]
        );
        assert_eq!(read_offset(value), Some(committed));
        assert_eq!(&group_key("g")[..], [0, 2, 0, 1, b'g']);
        assert_eq!(read_key(group_key("g")), Some(Key::Group("g".to_owned())));
        assert_eq!(read_key(Bytes::from_static(&[0, 9])), Some(Key::Unknown(9)));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_no_panic(bytes: Vec<u8>) {
            let bytes = Bytes::from(bytes);
            // Any answer will do.
            let _ = (read_key(bytes.clone()), read_offset(bytes.clone()), read_group(bytes));
        }
    }
}
