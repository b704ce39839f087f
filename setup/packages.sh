# shellcheck shell=bash
# Installs what is missing from the distribution's packages (Debian 12 and 13, Ubuntu 22.04 and 24.04). Sourced, never run.
# Needs setup/say.sh. Everything is skipped quickly when it is there; only apt runs as root, through sudo if need be.

# One list per purpose, so that nobody installs what he does not need.
# shellcheck disable=SC2034  # whoever sources this chooses among them
readonly packages_to_build=(gcc libc6-dev pkg-config ca-certificates)
# qemu-*, libnbd-bin: to run a guest on an export and look at one. The rest makes the guest's image (setup/guest-image).
# shellcheck disable=SC2034
readonly packages_to_boot_a_guest=(
    qemu-system-x86 qemu-utils libnbd-bin openssh-client
    mmdebstrap uidmap mount e2fsprogs dosfstools mtools fdisk syslinux syslinux-common cpio xz-utils zstd
)
# The foreign clients and servers that the tests measure Stonefold against.
# shellcheck disable=SC2034
readonly packages_to_test=(fdisk nbdkit libnbd-bin qemu-utils qemu-system-common qemu-system-x86 fio blktrace fuse3 e2fsprogs xfsprogs postgresql iproute2 procps systemd faketime python3-jsonschema python3-venv libvirt-daemon libvirt-daemon-driver-qemu libvirt-clients guestfish libguestfs-xfs ntfs-3g dosfstools mtools)

apt_log=$(cache_folder)/apt.log

# The kernel of libguestfs's machine is one of this machine's, from /boot; a container has none.
packages_of_a_kernel() {
    [ -z "$(compgen -G '/boot/vmlinuz-*')" ] || return 0
    # shellcheck source=/dev/null
    case $(. /etc/os-release && echo "$ID") in
        ubuntu) echo linux-image-virtual ;;
        *) echo "linux-image-cloud-$(dpkg --print-architecture)" ;;
    esac
}

# What draws the lab's pages. Ubuntu's package of that name fetches a snap, which neither a container nor a test can use.
packages_of_a_browser() {
    # shellcheck source=/dev/null
    [ "$(. /etc/os-release && echo "$ID")" = ubuntu ] || echo chromium
}

# need_packages WHY PACKAGE...: installs those that are missing.
need_packages() {
    local why=$1 missing=()
    shift
    mapfile -t missing < <(missing_packages "$@")
    [ ${#missing[@]} -gt 0 ] || return 0
    command -v apt-get >/dev/null || die "$why needs ${missing[*]}; this is neither Debian nor Ubuntu, so install the like of them yourself"
    say "installing $why: ${missing[*]}"
    mkdir -p "$(dirname "$apt_log")"
    : >"$apt_log"
    know_packages "${missing[@]}"
    quietly "$apt_log" "apt-get could not install ${missing[*]}" install_now "${missing[@]}"
}

missing_packages() {
    local package
    for package in "$@"; do
        is_installed "$package" || echo "$package"
    done
}

is_installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# A new machine's apt knows nothing, and an old list names packages that the mirror has replaced.
know_packages() {
    local package stale=
    for package in "$@"; do
        [ -n "$(candidate_version "$package")" ] || stale=yes
    done
    [ -n "$(find /var/lib/apt/lists -maxdepth 1 -name '*_*' -mtime -1 -print -quit 2>/dev/null)" ] || stale=yes
    [ -z "$stale" ] || update_lists
}

update_lists() {
    [ -z "${lists_updated:-}" ] || return 0
    say "updating apt's package lists"
    quietly "$apt_log" "apt-get update failed" as_root apt-get -q -o DPkg::Lock::Timeout=300 update
    lists_updated=yes
}

# The version that apt would install; nothing when it knows none.
candidate_version() { apt-cache policy "$1" 2>/dev/null | sed -n 's/^  Candidate: //p' | grep -v '^(none)$' || true; }

install_now() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 \
        -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold install --no-install-recommends "$@"
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "installing packages needs root: run this as root, or install sudo, or run yourself: $*"
    fi
}
