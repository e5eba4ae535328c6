# Finds the three libraries, builds C tests against UCX's headers, runs a program on one of the libraries. (sourced)
#
# For another processor (scripts/processor sets these variables):
#   PROCESSOR       Debian's name of it; the programs are built in a directory of that name
#   PROCESSOR_ROOT  Debian's packages for it
#   CC              its compiler
#   RUN_UNDER       the command under which its programs run

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$root/target/c_tests${PROCESSOR:+-$PROCESSOR}
read -ra compiler <<< "${CC:-cc}"
read -ra run_under <<< "${RUN_UNDER:-}"
debian_lib=${PROCESSOR_ROOT:-}/usr/lib/$("${compiler[0]}" -dumpmachine)

# Sets UCX_WHEEL, downloading the package if it is not set. libraries_find_wheel: without UCX 1.13.1.
libraries_find() {
    if [ ! -e "$debian_lib/libucp.so.0" ] || [ ! -e "${PROCESSOR_ROOT:-}/usr/include/ucp/api/ucp.h" ]; then
        echo "UCX 1.13.1 is missing: apt-get install libucx-dev" >&2
        return 1
    fi
    libraries_find_wheel
}

libraries_find_wheel() {
    UCX_WHEEL=${UCX_WHEEL:-$root/target/libucx-cu12/libucx}
    if [ ! -e "$UCX_WHEEL/lib/libucp.so.0" ]; then
        echo "fetching the package libucx-cu12" >&2
        local where
        where=$(dirname "$UCX_WHEEL")
        mkdir -p "$where"
        python3 -m pip download --quiet --no-deps -d "$where" libucx-cu12==1.22.0 &&
            python3 -m zipfile -e "$where"/libucx_cu12-*.whl "$where" || return 1
    fi
}

libraries_find_rucp() {
    if [ ! -e "${RUCP_LIB:-}/libucp.so.0" ] || [ ! -e "$RUCP_LIB/libucs.so.0" ]; then
        echo "RUCP_LIB must name the directory of rucp's libucp.so.0 and its other names (PREFIX/lib)" >&2
        return 1
    fi
}

library_directory() {
    case $1 in
    ucx-1.13) echo "$debian_lib" ;;
    ucx-1.22) echo "$UCX_WHEEL/lib" ;;
    rucp) echo "$RUCP_LIB" ;;
    esac
}

# on_library LIBRARY COMMAND...
on_library() {
    local directory
    directory=$(library_directory "$1")
    shift
    LD_LIBRARY_PATH=$directory "$@"
}

# library_proven LIBRARY MAPS...: every UCX library that the processes had mapped lies in the library's directory.
library_proven() {
    local directory file mapped=0
    directory=$(realpath "$(library_directory "$1")")
    shift
    while read -r file; do
        file=$(realpath "$file")
        [ "${file#"$directory"/}" != "$file" ] || return 1
        case $file in */libucp.so*) mapped=1 ;; esac
    done < <(cat "$@" | sort -u)
    [ "$mapped" -eq 1 ]
}

# build_program SOURCE HEADERS SUPPORT [OPTION...]: against UCX's own headers and linked to their library, with the
# sources in the directory SUPPORT; lazily bound, so that it also starts on a library that lacks a function it does not
# call. A previous build is kept as long as no source or header of a test is newer.
build_program() {
    local name include lib support
    name=$(basename "$1" .c)
    case $2 in
    debian) include=$3 lib=$debian_lib ;; # the headers are where the compiler looks anyway
    # The wheel's library is for this machine; where another processor's is needed, there is rucp's.
    wheel) include=$UCX_WHEEL/include lib=$([ -n "${PROCESSOR:-}" ] && echo "$RUCP_LIB" || echo "$UCX_WHEEL/lib") ;;
    esac
    mkdir -p "$work/$2"
    local compile=("${compiler[@]}" -std=gnu11 -O1 -g -Wall -Wextra -Werror)
    support=$work/$2/$(basename "$3").o
    built_as "$support" "${compile[@]}" -I"$3" -isystem "$include" -r -nostdlib -o "$support" "$3"/*.c &&
        built_as "$work/$2/$name" "${compile[@]}" "${@:4}" -I"$3" -isystem "$include" -o "$work/$2/$name" "$1" \
            "$support" \
            -L"$lib" -lucp -Wl,-z,lazy -Wl,--disable-new-dtags -Wl,--allow-shlib-undefined -lpthread
}

# built_as FILE COMMAND...: runs the command, which creates the file, unless the same command created it from the same
# sources. Scripts that run at the same time create it once.
built_as() {
    local file=$1
    shift
    (
        flock 9 || exit
        if [ -e "$file" ] && [ "$(cat "$file.command" 2> /dev/null)" = "$*" ] &&
            [ -z "$(find "$root/c_tests" "$root/include" -name '*.[ch]' -newer "$file" -print -quit)" ]; then
            exit 0
        fi
        "$@" && echo "$*" > "$file.command"
    ) 9> "$file.lock"
}
