# What of a backup by SSH runs on the other machine, as root: POSIX sh, and LVM's tools where there are logical volumes. It takes requests, a
# line each, from its input, and answers them in their order; session.rs draws both. It is never installed there.
#
# Promises: what it makes, snapshots, a folder and images of folders, goes when its input ends, a signal comes, or nothing has been asked for ten minutes. Never: writes
# to a device; removes a volume that has not its source's tag and a name of its own kind.
export LC_ALL=C LVM_SUPPRESS_FD_WARNINGS=1 PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"
umask 077
work= room= made= watching= number=0

answer() {
    printf '= %s %s\n' "$number" "$(($(wc -c <"$1")))"
    cat "$1"
}

refuse() {
    printf '! %s %s\n' "$number" "$*" | tr -d '\000-\011\013-\037'
    exit 1
}

# What cannot be read ends everything: its answer is begun, and a part of it is none.
broken() {
    cat "$1" >&2
    for each in $made; do
        case $(lvs --noheadings -o lv_attr "$each" </dev/null 2>/dev/null | tr -d ' ') in
            ????[IS]*) echo "the snapshot '$each' has overflowed" >&2 ;;
        esac
    done
    exit 1
}

# A volume that somebody looks at, as udev does, is tried again.
drop() {
    tried=0
    until lvremove -f -y "$1" </dev/null >"$work/dropped" 2>&1; do
        ! grep -q 'Failed to find logical volume\|not found' "$work/dropped" || return 0
        tried=$((tried + 1))
        [ "$tried" -lt 10 ] || { echo "the snapshot '$1' stays: $(tr '\n' ' ' <"$work/dropped")" >&2; return 1; }
        sleep 1
    done
}

clean() {
    trap '' HUP INT TERM PIPE
    [ -z "$watching" ] || kill "$watching" 2>/dev/null
    for each in $made; do drop "$each"; done
    [ -z "$work" ] || rm -rf "$work"
    [ -z "$room" ] || rm -rf "$room"
}
trap clean EXIT
trap 'exit 1' HUP INT TERM PIPE

# Ends everything once nothing new has been asked for ten minutes, or one answer has taken an hour: the connection is gone, and nobody said so.
watch() {
    same=0 last=
    while sleep 30; do
        read -r at <"$work/at"
        if [ "$at" = "$last" ]; then same=$((same + 1)); else same=0; fi
        last=$at
        case $at in
            *idle) [ "$same" -lt 20 ] || break ;;
            *) [ "$same" -lt 120 ] || break ;;
        esac
    done
    trap '' TERM
    kill -TERM "$$"
    kill -TERM 0
}

# --- look TAG DEVICE...: what there is. What a run of this source has left that was cut off goes before -----------------

look() {
    tag=$1
    shift
    case $tag in stonefold_?*) ;; *) refuse "'$tag' is no source's tag" ;; esac
    for folder in /run /tmp /var/tmp; do
        rm -rf "$folder/$tag".*
        [ -n "$work" ] || [ "$folder" = /var/tmp ] || work=$(mktemp -d "$folder/$tag.XXXXXX" 2>/dev/null)
    done
    [ -n "$work" ] || refuse 'no folder can be made in /run or /tmp'
    watch </dev/null >/dev/null 2>&1 &
    watching=$!
    sweep </dev/null
    facts "$@" </dev/null >"$work/answer" 2>"$work/said"
    answer "$work/answer"
}

sweep() {
    command -v lvs >/dev/null || return 0
    lvs --noheadings --separator '|' -o lv_name,vg_name,lv_tags 2>/dev/null >"$work/volumes"
    while IFS='|' read -r volume group tags; do
        case ",$tags," in *",$tag,"*) ;; *) continue ;; esac
        volume=${volume##* }
        case $volume in stonefold_*) drop "$group/$volume" ;; esac
    done <"$work/volumes"
}

facts() {
    echo '== machine'
    uname -m
    getconf _NPROCESSORS_ONLN || echo 1
    sed -n 's/^MemTotal: *\([0-9]*\).*/\1/p' /proc/meminfo
    if [ -d /sys/firmware/efi ]; then echo efi; else echo bios; fi
    if command -v lvcreate >/dev/null; then echo lvm; else echo -; fi
    echo '== named'
    for device; do named "$device"; done
    echo '== blocks'
    for path in /sys/class/block/*; do block "$path"; done
    echo '== mounts'
    cat /proc/self/mountinfo
    echo '== swaps'
    cat /proc/swaps
    echo '== kinds'
    lsblk -n -P -o KNAME,FSTYPE
    echo '== groups'
    # A name may be a link.
    pvs --noheadings --nosuffix --units b --separator '|' -o pv_name,vg_name,pe_start,vg_extent_size,pv_pe_count,vg_free |
        while IFS='|' read -r device rest; do echo "$(readlink -f "${device##* }")|$rest"; done
    echo '== segments'
    pvs --noheadings --separator '|' --segments -o pv_name,pvseg_start,pvseg_size,lv_name |
        while IFS='|' read -r device rest; do echo "$(readlink -f "${device##* }")|$rest"; done
    echo '== volumes'
    lvs --noheadings --nosuffix --units b --separator '|' -o vg_name,lv_name,lv_kernel_major,lv_kernel_minor,lv_size,segtype
    echo '== pools'
    lvs --noheadings --separator '|' -o vg_name,data_percent,metadata_percent -S segtype=thin-pool
    echo '== tables'
    dmsetup table
    echo '== end'
}

named() {
    path=$(readlink -f "$1")
    if [ -b "$path" ]; then
        echo "$1|block|${path#/dev/}"
    elif [ -f "$path" ]; then
        echo "$1|file|$path|$(($(wc -c <"$path")))"
    elif [ -d "$path" ]; then
        echo "$1|folder|$path"
    else
        echo "$1|none"
    fi
}

block() {
    device='' size=0 start=- disk=- mapped=-
    read -r device <"$1/dev"
    read -r size <"$1/size"
    [ "$size" != 0 ] || return 0
    [ ! -e "$1/start" ] || read -r start <"$1/start"
    if [ -e "$1/partition" ]; then
        disk=$(readlink -f "$1/..")
        disk=${disk##*/}
    fi
    [ ! -e "$1/dm/name" ] || read -r mapped <"$1/dm/name"
    echo "${1##*/}|$device|$size|$start|$disk|$mapped|$(cd "$1/slaves" 2>/dev/null && echo *)"
}

# --- tree NUMBER UUID TIME FOLDER: a folder as a file system in an image, which is made anew by each run and is the same where the folder is;
# answers the image's path and its bytes ---------------------------------------------------------------------------------

tree() {
    for each in mke2fs debugfs; do
        command -v "$each" >/dev/null || refuse "$each is not there, by which a folder is read: install e2fsprogs"
    done
    [ -n "$room" ] || room=$(mktemp -d "/var/tmp/$tag.XXXXXX" 2>"$work/said") || refuse "$(tr '\n' ' ' <"$work/said")"
    inodes=$(($(find "$4" -xdev | wc -l))) kib=$(du -skx "$4") free=$(df -Pk "$room" | sed 1d)
    kib=${kib%%[!0-9]*}
    # shellcheck disable=SC2086
    set -- "$@" $free
    [ "$8" -gt "$((kib + 65536))" ] || refuse "an image of '$4' takes $((kib + 65536)) KiB, and $8 are left in /var/tmp"
    export E2FSPROGS_FAKE_TIME="$3"
    tries=1
    # What is not counted, and grows meanwhile, gets more room.
    until filled "$@"; do
        tries=$((tries + 1))
        [ "$tries" -lt 4 ] || refuse "mke2fs: $(tail -n 3 "$work/said" | tr '\n' ' ')"
    done
    # What the folder itself is.
    stat -c 'set_inode_field / uid %u|set_inode_field / gid %g|set_inode_field / mtime @%Y' "$4" | tr '|' '\n' >"$work/root"
    printf 'set_inode_field / mode 0%o\n' "0x$(stat -c %f "$4")" >>"$work/root"
    debugfs -w -f "$work/root" "$room/$1" >/dev/null 2>"$work/said" || refuse "debugfs: $(tail -n 1 "$work/said")"
    # It says its version, and fails with success.
    ! grep -v '^debugfs ' "$work/said" >"$work/answer" || refuse "debugfs: $(tail -n 1 "$work/answer")"
    echo "$room/$1 $(($(wc -c <"$room/$1")))" >"$work/answer"
    answer "$work/answer"
}

filled() {
    rm -f "$room/$1"
    stepped $(((kib * 17 / 16 + inodes * 5 + 65536) * (tries + 1) / 2)) 8192
    blocks=$((stepped / 4))
    stepped $((inodes + 64)) 64
    mke2fs -q -F -t ext4 -b 4096 -m 0 -O '^has_journal,^resize_inode' -N "$stepped" -U "$2" \
        -E "hash_seed=$2,lazy_itable_init=1" -d "$4" "$room/$1" "$blocks" </dev/null >"$work/said" 2>&1
}

# At least that much, in steps of an eighth of itself: so it is the same from run to run.
stepped() {
    step=$2
    while [ $((step * 16)) -le "$1" ]; do step=$((step * 2)); done
    stepped=$((($1 + step - 1) / step * step))
}

# --- flush DEVICE...: nothing of an earlier look is in the kernel's memory, and what is mounted has been written ----------

flush() {
    sync
    for device; do
        [ ! -b "$device" ] || blockdev --flushbufs "$device" </dev/null >/dev/null 2>&1
    done
    : >"$work/answer"
    answer "$work/answer"
}

# --- keep NAME DEVICE BLOCK SKIP COUNT: a copy of a place in the folder; answers the copy's path --------------------------

keep() {
    dd if="$2" bs="$3" skip="$4" count="$5" of="$work/$1" </dev/null 2>"$work/said" || broken "$work/said"
    echo "$work/$1" >"$work/answer"
    answer "$work/answer"
}

# --- snap GROUP VOLUME NAME BYTES TAG: a snapshot with so much room; 0 of a thin volume, which has its pool's ------------

snap() {
    made="$made $1/$3"
    if [ "$4" = 0 ]; then
        lvcreate -y -s -kn -n "$3" --addtag stonefold --addtag "$5" "$1/$2"
    else
        lvcreate -y -s -L "${4}b" -n "$3" --addtag stonefold --addtag "$5" "$1/$2"
    fi </dev/null >"$work/said" 2>&1 || refuse "$(tr '\n' ' ' <"$work/said")"
    : >"$work/answer"
    answer "$work/answer"
}

# --- state: whether the snapshots hold yet ------------------------------------------------------------------------------

state() {
    # shellcheck disable=SC2086
    lvs --noheadings --separator '|' -o lv_name,lv_attr,data_percent $made </dev/null >"$work/answer" 2>"$work/said" || broken "$work/said"
    answer "$work/answer"
}

# --- whole DEVICE: a sum of all of it, as it lies on its medium ----------------------------------------------------------

whole() {
    sync
    [ ! -b "$1" ] || blockdev --flushbufs "$1" </dev/null >/dev/null 2>&1
    sha256sum <"$1" >"$work/answer" 2>"$work/said" || broken "$work/said"
    answer "$work/answer"
}

# --- data DEVICE BLOCK SKIP COUNT: its bytes -----------------------------------------------------------------------------

data() {
    printf '= %s %s\n' "$number" "$(($2 * $4))"
    dd if="$1" bs="$2" skip="$3" count="$4" </dev/null 2>"$work/said" || broken "$work/said"
}

# --- sums N, and N lines behind it: a sum of each line's pieces, DEVICE BLOCK SKIP COUNT each; four at a time -------------

sums() {
    left=$1 lane=0 lanes=
    part=$((($1 + 3) / 4))
    rm -f "$work"/lane.*
    while [ "$left" -gt 0 ]; do
        lane=$((lane + 1)) here=0
        while [ "$here" -lt "$part" ] && [ "$left" -gt 0 ]; do
            IFS= read -r line || exit 1
            echo "$line"
            here=$((here + 1)) left=$((left - 1))
        done >"$work/lane.$lane"
        summed "$work/lane.$lane" >"$work/lane.$lane.sums" &
        lanes="$lanes $!"
    done
    for each in $lanes; do wait "$each"; done
    for each in "$work"/lane.*.failed; do
        [ ! -e "$each" ] || broken "$each"
    done
    cat "$work"/lane.?.sums >"$work/answer"
    answer "$work/answer"
}

summed() {
    while read -r line; do
        # shellcheck disable=SC2086
        pieces "$1" $line | sha256sum
    done <"$1"
}

pieces() {
    lane=$1
    shift
    while [ $# -gt 0 ]; do
        dd if="$1" bs="$2" skip="$3" count="$4" </dev/null 2>"$lane.said" || { cp "$lane.said" "$lane.failed"; return; }
        shift 4
    done
}

# -------------------------------------------------------------------------------------------------------------------------

printf 'stonefold 1\n'
while read -r verb rest; do
    number=$((number + 1))
    [ -z "$work" ] || echo "$number" >"$work/at"
    set -f
    # shellcheck disable=SC2086
    set -- $rest
    set +f
    case $verb in
        look | tree | flush | keep | snap | state | whole | data | sums) "$verb" "$@" ;;
        *) refuse "'$verb' is not known here" ;;
    esac
    echo "$number idle" >"$work/at"
done
exit 0
