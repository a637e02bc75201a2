#!/bin/busybox sh
# Process 1 of a guest whose kernel has the driver of the root folder as modules: it loads them, mounts the root folder and
# continues with the program that the kernel's command line names: init=PROGRAM.
busybox mount -t proc proc /proc
busybox mount -t devtmpfs dev /dev
exec >/dev/console 2>&1
for module in /modules/*; do busybox insmod "$module" 2>/dev/null; done # a module may be there twice
for word in $(busybox cat /proc/cmdline); do case $word in init=*) init=${word#init=} ;; esac; done
busybox mount -t virtiofs -o ro hostroot /root || echo "guest: cannot mount the root folder"
busybox umount /dev /proc
exec busybox switch_root /root "$init"
