//! Streams that an engine answers with: lines of progress, and the two outputs of a container in
//! frames.

/// Cuts chunks of bytes into lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pending: Vec<u8>,
}

impl Lines {
    /// The lines that are whole now.
    pub(super) fn push(&mut self, chunk: &[u8]) -> Vec<String> {
        self.pending.extend_from_slice(chunk);
        let mut whole = Vec::new();
        while let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.pending.drain(..=end).collect();
            whole.push(String::from_utf8_lossy(&line).trim_end().to_owned());
        }
        whole
    }

    /// What is left when the stream ends without a line end.
    pub(super) fn rest(self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.pending).trim().to_owned();
        (!text.is_empty()).then_some(text)
    }
}

/// Standard output and standard error of a container, out of the engine's frames: a byte that
/// tells the stream (1, 2), three zeros, the length as a big-endian u32, then the bytes.
pub(super) fn split_outputs(mut frames: &[u8]) -> (String, String) {
    const HEADER_BYTES: usize = 8;
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    while let Some((header, rest)) = frames.split_first_chunk::<HEADER_BYTES>() {
        let length = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
        let length = usize::try_from(length).unwrap_or(usize::MAX).min(rest.len());
        let (content, rest) = rest.split_at(length);
        match header[0] {
            2 => stderr.extend_from_slice(content),
            _ => stdout.extend_from_slice(content),
        }
        frames = rest;
    }
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (text(stdout), text(stderr))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_at_line_ends_only() {
        let mut lines = Lines::default();
        assert!(lines.push(b"{\"a\"").is_empty());
        assert_eq!(lines.push(b":1}\r\n{\"b\":2}\n{"), ["{\"a\":1}", "{\"b\":2}"]);
        assert_eq!(lines.rest().as_deref(), Some("{"));
        assert_eq!(Lines::default().rest(), None);
    }

    #[test]
    fn frames_are_split_by_stream() {
        let mut frames = vec![1, 0, 0, 0, 0, 0, 0, 3];
        frames.extend(b"out");
        frames.extend([2, 0, 0, 0, 0, 0, 0, 4]);
        frames.extend(b"err\n");
        frames.extend([1, 0, 0, 0, 0, 0, 0, 9]);
        frames.extend(b"cut");
        assert_eq!(split_outputs(&frames), ("outcut".into(), "err\n".into()));
        assert_eq!(split_outputs(&[1, 0]), (String::new(), String::new()));
    }
}
