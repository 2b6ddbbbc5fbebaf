//! The files that an image is built from, as the tar that the engine takes.

use std::fs::File;
use std::io::{self, Seek as _};
use std::path::{Path, PathBuf};

use reqwest::Body;
use tar::{Builder, EntryType, Header, HeaderMode};

/// What goes into a build context.
#[derive(Clone, Debug)]
pub(super) enum Entry<'a> {
    /// A file of this name with this text.
    Text(&'a str, &'a str),
    /// A file that may be executed, under this name.
    Program(&'a str, &'a Path),
    /// The files of a folder, under this name.
    Folder(&'a str, &'a Path),
}

/// Writes the context into a nameless temporary file.
pub(super) fn write(entries: &[Entry<'_>]) -> io::Result<File> {
    let mut tar = Builder::new(tempfile::tempfile()?);
    // The same files give the same bytes, whoever owns them.
    tar.mode(HeaderMode::Deterministic);
    for entry in entries {
        match entry {
            Entry::Text(name, text) => {
                let mut header = Header::new_gnu();
                header.set_entry_type(EntryType::Regular);
                header.set_mode(0o644);
                header.set_size(text.len() as u64);
                tar.append_data(&mut header, name, text.as_bytes())?;
            }
            Entry::Program(name, path) => {
                let mut file = File::open(path)?;
                let mut header = Header::new_gnu();
                header.set_entry_type(EntryType::Regular);
                header.set_mode(0o755);
                header.set_size(file.metadata()?.len());
                tar.append_data(&mut header, name, &mut file)?;
            }
            Entry::Folder(name, folder) => {
                for path in files_of(folder)? {
                    let file_name = path.file_name().unwrap_or_default();
                    tar.append_path_with_name(&path, Path::new(name).join(file_name))?;
                }
            }
        }
    }
    let mut file = tar.into_inner()?;
    file.rewind()?;
    Ok(file)
}

/// The files of a folder, sorted; links count as what they lead to, subfolders do not.
pub(super) fn files_of(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// A file as the body of a request, read as it is sent.
pub(super) fn body(file: File) -> Body {
    tokio::fs::File::from_std(file).into()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read as _;

    use super::*;

    #[test]
    fn a_context_holds_texts_and_folders_and_is_the_same_each_time() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["b.jar", "a.jar"] {
            fs::write(dir.path().join(name), name).unwrap();
        }
        fs::create_dir(dir.path().join("sub")).unwrap();
        std::os::unix::fs::symlink("a.jar", dir.path().join("link.jar")).unwrap();
        let entries = [Entry::Text("Dockerfile", "FROM x\n"), Entry::Folder("libs", dir.path())];
        let read = || {
            let mut bytes = Vec::new();
            write(&entries).unwrap().read_to_end(&mut bytes).unwrap();
            bytes
        };
        let bytes = read();
        assert_eq!(bytes, read());
        let mut tar = tar::Archive::new(&*bytes);
        let contents: Vec<(String, String)> = tar
            .entries()
            .unwrap()
            .map(|entry| {
                let mut entry = entry.unwrap();
                let mut text = String::new();
                entry.read_to_string(&mut text).unwrap();
                (entry.path().unwrap().display().to_string(), text)
            })
            .collect();
        let expected = [
            ("Dockerfile", "FROM x\n"),
            ("libs/a.jar", "a.jar"),
            ("libs/b.jar", "b.jar"),
            ("libs/link.jar", "a.jar"),
        ];
        assert_eq!(contents, expected.map(|(name, text)| (name.to_owned(), text.to_owned())));
    }

    #[test]
    fn a_folder_that_is_not_there_is_an_error() {
        assert!(write(&[Entry::Folder("libs", Path::new("/no/such/folder"))]).is_err());
    }
}
