# Boot files of a guest: a kernel and a first file system, built once. (sourced by scripts/guest, which has `cache`,
# `parts` and `fail`)

# Modules that give access to the files of the host; all others are loaded from there.
modules="virtio_pci virtio_console 9pnet_virtio 9p overlay"

# The kernel inside of vmlinuz: QEMU enters it directly, and an emulated processor would take long to unpack it.
kernel() { # VMLINUZ OUTPUT
    local offset
    for offset in $(LC_ALL=C grep -abo $'\xfd7zXZ' "$1" | cut -d: -f1); do
        tail -c +$((offset + 1)) "$1" | xz -dc --single-stream > "$2" 2> /dev/null
        [ "$(head -c 4 "$2" | tail -c 3)" != ELF ] || return 0
    done
    return 1
}

first_files() { # DIRECTORY VERSION
    local module
    mkdir -p "$1"/{bin,modules,dev,proc,sys,lower,upper,root}
    cp "$cache/busybox/bin/busybox" "$1/bin/" && cp "$parts/init" "$1/init" || return
    for module in $modules; do
        modprobe -d "$cache/kernel" -S "$2" --show-depends "$module" || return
    done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' > "$1/modules/paths" || return
    xargs cp -t "$1/modules" < "$1/modules/paths" && sed -i 's/.*\///' "$1/modules/paths"
}

# The inputs of the files in the cache.
makers() { cat "$parts/boot.sh" "$parts/init" | cksum; }

boot_files() {
    local version new=$cache/new
    [ -x "$cache/busybox/bin/busybox" ] || fail "there is no kernel to boot (scripts/setup guest fetches it)"
    version=$(cd "$cache/kernel/lib/modules" && echo *)
    rm -rf "$new"
    first_files "$new/files" "$version" || fail "cannot make the first file system"
    (cd "$new/files" && find . | "$cache/busybox/bin/busybox" cpio -o -H newc) > "$new/initrd" 2> /dev/null || fail cpio
    kernel "$cache/kernel/boot/vmlinuz-$version" "$new/vmlinux" || fail "no kernel in vmlinuz-$version"
    mv -f "$new/vmlinux" "$new/initrd" "$cache/" && rm -rf "$new" && makers > "$cache/made-by"
}

for tool in qemu-system-x86_64 modprobe xz; do
    command -v $tool > /dev/null || fail "no $tool (scripts/setup guest installs it)"
done
mkdir -p "$cache" && exec 9> "$cache/lock" && flock 9 || fail "cannot write to $cache"
[ "$(cat "$cache/made-by" 2> /dev/null)" = "$(makers)" ] || boot_files
exec 9>&-
