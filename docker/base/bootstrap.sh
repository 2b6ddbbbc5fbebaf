#!/bin/sh
# The same image where no registry answers: a root file system out of Debian's packages.
# Usage: bootstrap.sh DIR TAR [MIRROR]. As root, in a mount namespace of its own, so that what
# debootstrap mounts is gone when this ends, however it ends.
set -eu
dir=$1 tar=$2 mirror=${3-}
export PATH="$PATH:/usr/sbin:/sbin" LC_ALL=C
packages=$(paste -sd, "$(dirname "$0")/packages")
debootstrap --variant=minbase --include="$packages" bookworm "$dir" ${mirror:+"$mirror"}
# Nodes read no manuals, and the engine mounts what is below /dev, /proc and /sys.
tar --create --file "$tar" --directory "$dir" --numeric-owner --one-file-system \
  --exclude='./dev/*' --exclude='./proc/*' --exclude='./sys/*' --exclude='./run/*' \
  --exclude='./tmp/*' --exclude='./var/cache/apt/*' --exclude='./var/lib/apt/lists/*' \
  --exclude='./var/log/*' --exclude='./usr/share/doc/*' --exclude='./usr/share/info/*' \
  --exclude='./usr/share/locale/*' --exclude='./usr/share/man/*' .
