#!/bin/sh
# Process 1 of the guest that run.sh starts. The guest's root folder is the host's. The kernel's command line names the
# folder of the job: job=FOLDER.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TMPDIR=/run/tmp
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/bin /run/netns /run/lock
mkdir -m 1777 /run/tmp # an empty file system on /var/tmp would hide a repository that is there
mount -t tmpfs tmpfs /dev/shm
for word in $(cat /proc/cmdline); do case $word in job=*) job=${word#job=} ;; esac; done
. "$job/env"
# The kernel loads modules by itself. It must find the modules of the guest's kernel, not those of the host.
printf '#!/bin/sh\nexec /sbin/modprobe -d %s "$@"\n' "$kernel" >/run/bin/modprobe
chmod +x /run/bin/modprobe
echo /run/bin/modprobe >/proc/sys/kernel/modprobe
/run/bin/modprobe -a $modules
ip link set lo up
read up rest </proc/uptime
echo "guest: $(uname -r) ready at ${up}s" >/dev/console
export VERDICT_FAILURES=/run/failures # what failed tests leave ends with the guest, so the ends of the files are printed
{
	(. "$job/cmd") </dev/null
	code=$?
	[ ! -d $VERDICT_FAILURES ] || find $VERDICT_FAILURES -type f -size +0 | sort | while read -r file; do
		printf '\nthe end of %s:\n' "$file"
		tail -n 60 "$file"
	done
} >"$(ls /dev/vport*p1)" 2>&1
echo $code >"$(ls /dev/vport*p2)"
read up rest </proc/uptime
echo "guest: done at ${up}s" >/dev/console
echo o >/proc/sysrq-trigger
sleep 60
