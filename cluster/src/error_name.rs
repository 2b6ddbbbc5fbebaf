//! The names that Kafka gives its errors.

use kafka_protocol::ResponseError;

/// `OFFSET_OUT_OF_RANGE`.
pub(crate) fn error_name(error: ResponseError) -> String {
    let mut name = String::new();
    for letter in format!("{error:?}").chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}
