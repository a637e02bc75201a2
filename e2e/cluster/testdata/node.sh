#!/bin/bash
# node.sh NAME FOLDER: the first process of a node, in network, PID, mount and UTS namespaces of its own. It gives the node
# its own /run, /var, control groups and container storage, and then waits and reaps. When it ends, all processes of the
# node end.
set -eu
name=$1 dir=$2
[ -d /sys/fs/cgroup/memory ] || { echo "node.sh: the machine must have control groups of version 1 in /sys/fs/cgroup" >&2; exit 1; }
mount --make-rprivate /
hostname "$name"
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /sys/fs/cgroup
for c in cpu cpuacct cpuset memory devices freezer blkio pids; do
	mkdir /sys/fs/cgroup/$c
	mount -t cgroup -o $c cgroup /sys/fs/cgroup/$c
	mkdir -p "/sys/fs/cgroup/$c/$name"
done
mkdir /sys/fs/cgroup/systemd
mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd
mkdir -p "/sys/fs/cgroup/systemd/$name"
for f in cpuset.cpus cpuset.mems; do cat /sys/fs/cgroup/cpuset/$f >"/sys/fs/cgroup/cpuset/$name/$f"; done
# On a real node, pods together compete with one group of system services. Here, they compete with each process of the machine.
echo 16384 >"/sys/fs/cgroup/cpu/$name/cpu.shares"
# Settings of the kernel belong to the machine. Only those of the node's own network may be written. The kubelet sets some
# others: it finds files with the values that it wants.
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys
mount --bind /proc/sys/net /proc/sys/net
mount -o remount,bind,rw /proc/sys/net
mount -t tmpfs tmpfs /run
mkdir -p /run/lock /run/netns /run/sys
for s in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1; do
	f=/run/sys/${s//\//-}
	echo "${s#*=}" >"$f"
	mount --bind "$f" "/proc/sys/${s%=*}"
done
# The folder is on a disk, because the storage of containers cannot be on a tmpfs. It survives a reboot of the node.
mkdir -p "$dir"/{kubelet,containerd}
mount -t tmpfs tmpfs /mnt
mkdir /mnt/{kubelet,containerd}
mount --bind "$dir/kubelet" /mnt/kubelet
mount --bind "$dir/containerd" /mnt/containerd
mount -t tmpfs tmpfs /var/lib
mkdir -p /var/lib/{kubelet,containerd,cni}
mount --move /mnt/kubelet /var/lib/kubelet
mount --move /mnt/containerd /var/lib/containerd
umount /mnt
mount -t tmpfs tmpfs /var/log
mount --make-rshared /
echo ready >"$dir/ready"
while :; do sleep 3600 & wait $! || true; done
