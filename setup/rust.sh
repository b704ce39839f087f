# shellcheck shell=bash
# Finds a Rust that is new enough, or installs one, and puts it first in PATH. Sourced, never run.
# Needs setup/say.sh.
# shellcheck source=setup/packages.sh
. "$(dirname "${BASH_SOURCE[0]}")/packages.sh"

readonly rust_at_least=1.85

# use_rust to-build: cargo and rustc. use_rust to-check: cargo fmt and cargo clippy too.
use_rust() {
    local with_checks=
    [ "$1" = to-build ] || with_checks=yes
    if ! find_rust; then
        install_rust "$with_checks"
        hash -r
        find_rust || die "Rust was installed, and yet there is no cargo with rustc $rust_at_least or newer in PATH"
    fi
    [ -z "$with_checks" ] || need_checks
    say "using $(rustc --version) from $(dirname "$(command -v cargo)")"
}

# Looks in PATH, where rustup puts it, and where Ubuntu puts its versioned packages.
find_rust() {
    local folder
    for folder in "$(dirname "$(command -v cargo || echo /nowhere/cargo)")" "${CARGO_HOME:-$HOME/.cargo}/bin" $(versioned_folders); do
        if new_enough "$folder"; then
            PATH=$folder:$PATH
            export PATH
            return 0
        fi
    done
    return 1
}

# Newest first.
versioned_folders() { printf '%s\n' /usr/lib/rust-1.*/bin | grep -vF '*' | sort -rV || true; }

new_enough() {
    local version
    [ -x "$1/cargo" ] && [ -x "$1/rustc" ] || return 1
    version=$("$1/rustc" --version 2>/dev/null | awk '{ print $2 }')
    at_least "$version"
}

at_least() { [ -n "$1" ] && dpkg --compare-versions "${1%%[-+~]*}" ge "$rust_at_least"; }

# The distribution's own package where it is new enough; the order is from the plainest to the most roundabout.
install_rust() {
    local with_checks=$1 versioned
    update_lists
    versioned=$(newest_versioned)
    if at_least "$(candidate_version rustc)"; then
        need_packages "Rust" rustc cargo
        [ -z "$with_checks" ] || need_packages "Rust's checks" rustfmt rust-clippy
    elif at_least "$(candidate_version rustc-web)"; then
        # Debian's newer Rust for its stable releases; it takes the place of the old rustc package.
        need_packages "Rust" rustc-web cargo-web
        [ -z "$with_checks" ] || need_packages "Rust's checks" rustfmt-web rust-web-clippy
    elif [ -n "$versioned" ]; then
        need_packages "Rust" "rustc-$versioned" "cargo-$versioned"
        [ -z "$with_checks" ] || need_packages "Rust's checks" "rustfmt-$versioned" "rust-$versioned-clippy"
    elif [ -n "$(candidate_version rustup)" ]; then
        need_packages "rustup" rustup
        say "rustup fetches the stable Rust"
        quietly "$apt_log" "rustup could not install the stable Rust" rustup toolchain install stable --profile minimal --component rustfmt --component clippy
        quietly "$apt_log" "rustup could not choose the stable Rust" rustup default stable
    else
        die "no package of this distribution brings Rust $rust_at_least or newer (looked for rustc, rustc-web, rustc-1.NN, rustup): install it by rustup, then run this again"
    fi
}

# The NN of the newest rustc-1.NN package that will do (Ubuntu has several side by side), written 1.NN.
newest_versioned() {
    apt-cache search --names-only '^rustc-1\.[0-9]+$' | sed -n 's/^rustc-\(1\.[0-9]*\) .*/\1/p' | sort -rV |
        while read -r version; do
            if at_least "$version"; then
                echo "$version"
                break
            fi
        done
}

# A Rust that was already there may lack the formatter or the linter.
need_checks() {
    if cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1; then
        return 0
    fi
    local owner
    owner=$(dpkg-query -S "$(readlink -f "$(command -v rustc)")" 2>/dev/null | cut -d: -f1 || true)
    case $owner in
        rustc) need_packages "Rust's checks" rustfmt rust-clippy ;;
        rustc-web) need_packages "Rust's checks" rustfmt-web rust-web-clippy ;;
        rustc-1.*) need_packages "Rust's checks" "rustfmt-${owner#rustc-}" "rust-${owner#rustc-}-clippy" ;;
        *)
            command -v rustup >/dev/null || die "this Rust has no cargo fmt or no cargo clippy: add the components rustfmt and clippy to it"
            say "rustup adds rustfmt and clippy"
            quietly "$apt_log" "rustup could not add rustfmt and clippy" rustup component add rustfmt clippy
            ;;
    esac
}
