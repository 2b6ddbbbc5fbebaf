//! What the cluster as a whole does or does not do.

use crate::metadata::{Image, Record};

/// KIP-966, eligible leader replicas.
pub const ELR: &str = "eligible.leader.replicas.version";

/// Is KIP-966 on?
pub fn has_elr(image: &Image) -> bool {
    image.feature(ELR).unwrap_or(0) > 0
}

/// What a new cluster is told; nothing for one that knows.
pub fn first(image: &Image, with_elr: bool) -> Vec<Record> {
    if image.feature(ELR).is_some() {
        return Vec::new();
    }
    vec![Record::Feature { name: ELR.to_owned(), level: i16::from(with_elr) }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_told_once() {
        let mut image = Image::default();
        assert!(!has_elr(&image));
        for record in first(&image, true) {
            image.apply(1, &record).unwrap();
        }
        assert!(has_elr(&image));
        assert_eq!(first(&image, false), []);
    }
}
