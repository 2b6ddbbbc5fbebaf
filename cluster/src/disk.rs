//! Disks of their own for nodes, so that power can be lost: a file system on an image, whose own shutdown
//! drops what was not synced.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Seek as _, Write as _};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::unistd::geteuid;

use crate::backend::BackendError;
use crate::netns::run_command;
use crate::node::{NodeName, NodeSpec};

/// Of an image. It takes only what is written.
const IMAGE_BYTES: u64 = 1 << 30;
/// `EXT4_GOING_FLAGS_NOLOGFLUSH`: not even the journal reaches the disk.
const NO_LOG_FLUSH: u32 = 2;

mod shutdown {
    // `EXT4_IOC_SHUTDOWN`, the same number as XFS's.
    nix::ioctl_read!(file_system, b'X', 125, u32);
}

/// `EXT4_GOING_FLAGS_DEFAULT`: what was written so far reaches the disk first.
const FLUSH_FIRST: u32 = 0;
/// Takes what is left of a disk.
const FILLER: &str = "filler.highwater";
/// Written at once behind the space that can be reserved.
const REST_BYTES: usize = 4096;

/// What is wrong with a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ailment {
    /// Nothing fits on it any more.
    Full,
    /// It has all that was written so far, and takes and gives nothing from now on.
    Failing,
}

/// The disks of all nodes.
pub(crate) struct Disks {
    /// By node: where it is mounted, and whether it is now.
    places: Mutex<BTreeMap<NodeName, (PathBuf, bool)>>,
}

impl Disks {
    /// Gives each of `nodes`, whose folders lie in `dir`, a disk for its data.
    ///
    /// # Errors
    /// Unsupported where there is no root or no loop device; what failed else.
    pub(crate) fn create(dir: &Path, nodes: &[NodeSpec]) -> Result<Self, BackendError> {
        if !geteuid().is_root() || !is_real_root() {
            return Err(BackendError::Unsupported {
                backend: "namespaces",
                reason: "losing power takes a file system of the node's own, and only root may mount one"
                    .to_owned(),
                remedy: "Run as root, or leave power-off out.".to_owned(),
            });
        }
        // Nodes have mounts of their own: what is mounted below here must come and go in all of them.
        let place = dir.display().to_string();
        run(&["mount", "--bind", &place, &place])?;
        run(&["mount", "--make-shared", &place])?;
        let disks = Self { places: Mutex::default() };
        for node in nodes {
            let image = image(&node.data_dir());
            make_image(&image, &node.data_dir()).map_err(|error| BackendError::Failed {
                context: format!("{}: cannot make {}", node.name, image.display()),
                reason: error.to_string(),
            })?;
            run(&["mkfs.ext4", "-q", "-F", "-m", "0", &image.display().to_string()])?;
            disks.lock().insert(node.name, (node.data_dir(), false));
            disks.mount(node.name)?;
            // Kafka takes every folder in its data for a partition's.
            fs::remove_dir(node.data_dir().join("lost+found"))
                .map_err(|error| failed(node.name, "clear its new disk", &error))?;
            disks.sync(node.name)?;
        }
        Ok(disks)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<NodeName, (PathBuf, bool)>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the disk of a node is mounted; none where it is not.
    fn mounted(&self, node: NodeName) -> Option<PathBuf> {
        self.lock().get(&node).filter(|(_, mounted)| *mounted).map(|(data, _)| data.clone())
    }

    /// Makes sure that the node's disk is there, as it is after power came back.
    pub(crate) fn mount(&self, node: NodeName) -> Result<(), BackendError> {
        let mut places = self.lock();
        let Some((data, mounted)) = places.get_mut(&node) else { return Ok(()) };
        if !*mounted {
            let (image, data) = (image(data).display().to_string(), data.display().to_string());
            run(&["mount", "-t", "ext4", "-o", "loop", &image, &data])?;
            *mounted = true;
        }
        Ok(())
    }

    /// Writes everything down that the node's disk has not got yet.
    pub(crate) fn sync(&self, node: NodeName) -> Result<(), BackendError> {
        let Some(data) = self.mounted(node) else { return Ok(()) };
        File::open(&data)
            .and_then(|dir| nix::unistd::syncfs(&dir).map_err(io::Error::from))
            .map_err(|error| failed(node, "sync its disk", &error))
    }

    /// The power goes: from now on nothing reaches the disks of `nodes`, and what was not synced is
    /// gone.
    pub(crate) fn cut_power(
        &self,
        nodes: &BTreeSet<NodeName>,
    ) -> BTreeMap<NodeName, Result<(), BackendError>> {
        let places = self.lock();
        let cut = |node: &NodeName| {
            let Some((data, true)) = places.get(node) else {
                return Err(failed(
                    *node,
                    "cut its power",
                    &io::Error::other("it has no disk now"),
                ));
            };
            shut_down(data, NO_LOG_FLUSH).map_err(|error| failed(*node, "cut its power", &error))
        };
        nodes.iter().map(|node| (*node, cut(node))).collect()
    }

    /// The disk of a node becomes bad, whose process runs on; what writing to it says then.
    pub(crate) fn spoil(&self, node: NodeName, ailment: Ailment) -> Result<String, BackendError> {
        let Some(data) = self.mounted(node) else {
            return Err(failed(node, "spoil its disk", &io::Error::other("it has no disk now")));
        };
        let spoilt = match ailment {
            Ailment::Full => fill(&data),
            Ailment::Failing => shut_down(&data, FLUSH_FIRST),
        };
        let seen = spoilt.and_then(|()| match write_a_little(&data) {
            Ok(()) => Err(io::Error::other("it still takes what is written")),
            Err(error)
                if ailment == Ailment::Full && error.kind() != io::ErrorKind::StorageFull =>
            {
                Err(error)
            }
            Err(error) => Ok(error.to_string()),
        });
        seen.map_err(|error| failed(node, "spoil its disk", &error))
    }

    /// There is room again on the disk of a node.
    pub(crate) fn free(&self, node: NodeName) -> Result<(), BackendError> {
        let Some(data) = self.mounted(node) else { return Ok(()) };
        match fs::remove_file(data.join(FILLER)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(failed(node, "make room on its disk", &error))
            }
            _ => Ok(()),
        }
    }

    /// Takes the disk of a node away whose process is gone.
    pub(crate) fn unmount(&self, node: NodeName) -> Result<(), BackendError> {
        let mut places = self.lock();
        let Some((data, mounted)) = places.get_mut(&node) else { return Ok(()) };
        if *mounted {
            run(&["umount", &data.display().to_string()])?;
            *mounted = false;
        }
        Ok(())
    }

    /// Takes all disks away.
    pub(crate) fn unmount_all(&self) -> Result<(), BackendError> {
        let nodes: Vec<NodeName> = self.lock().keys().copied().collect();
        let mut first_error = Ok(());
        for node in nodes {
            let done = self.unmount(node);
            first_error = first_error.and(done);
        }
        first_error
    }
}

/// Beside the folder that it is mounted on.
fn image(data: &Path) -> PathBuf {
    data.with_extension("img")
}

fn make_image(image: &Path, data: &Path) -> io::Result<()> {
    fs::create_dir_all(data)?;
    File::create(image)?.set_len(IMAGE_BYTES)
}

/// Not the root of a user namespace, who may mount little.
fn is_real_root() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().collect::<Vec<_>>() == ["0", "0", "4294967295"]
}

fn shut_down(data: &Path, mut flags: u32) -> io::Result<()> {
    let dir = File::open(data)?;
    // SAFETY: the file is open for as long as the call lasts, and the kernel reads one `u32` from
    // the address, which is valid for it.
    #[expect(unsafe_code, reason = "only an ioctl shuts a file system down")]
    unsafe { shutdown::file_system(dir.as_raw_fd(), &raw mut flags) }?;
    Ok(())
}

/// Takes all the room that is left.
fn fill(data: &Path) -> io::Result<()> {
    let mut filler = File::create(data.join(FILLER))?;
    let room = nix::sys::statvfs::fstatvfs(&filler)?;
    let mut free = room.blocks_available() * room.fragment_size();
    // What can be reserved at once, a little less each time: a file's own map takes room, too.
    while free > 0 {
        let length = i64::try_from(free).unwrap_or(i64::MAX);
        match nix::fcntl::fallocate(&filler, nix::fcntl::FallocateFlags::empty(), 0, length) {
            Ok(()) => break,
            Err(nix::Error::ENOSPC) => free = free.saturating_sub(1 << 20),
            Err(error) => return Err(error.into()),
        }
    }
    filler.seek(io::SeekFrom::End(0))?;
    // Each goes to the disk, or it would only seem to fit.
    while filler.write_all(&[0; REST_BYTES]).and_then(|()| filler.sync_data()).is_ok() {}
    Ok(())
}

fn write_a_little(data: &Path) -> io::Result<()> {
    let path = data.join("probe.highwater");
    let written = File::create(&path).and_then(|mut file| {
        file.write_all(&[1; 2 * REST_BYTES])?;
        file.sync_all()
    });
    // It may not have come to be.
    let _ = fs::remove_file(path);
    written
}

fn run(argv: &[&str]) -> Result<(), BackendError> {
    run_command(argv, "").map(drop).map_err(|error| BackendError::Failed {
        context: "cannot prepare the nodes' disks".to_owned(),
        reason: error.to_string(),
    })
}

fn failed(node: NodeName, what: &str, error: &io::Error) -> BackendError {
    BackendError::Failed { context: format!("{node}: cannot {what}"), reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_lies_beside_the_data() {
        assert_eq!(image(Path::new("/r/n1/data")), Path::new("/r/n1/data.img"));
    }
}
