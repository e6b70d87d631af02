#!/bin/sh
# The guest's first process. It exports a disk of its own over NFS to itself, mounts the export twice without sharing caches, so
# that the two mounts behave as two hosts, shows both inside the outer machine's file system at $LAB/mounts, and runs $JOB there.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
say() { echo "guest: $*"; }

mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev || say "no devtmpfs"
mkdir -p /dev/shm /dev/pts
mount -t tmpfs none /dev/shm
mount -t devpts none /dev/pts
# The root belongs to the outer machine: what changes goes into memory.
for place in /run /tmp /mnt /srv /var/lib/nfs; do mount -t tmpfs none "$place"; done
mkdir -p /run/rpcbind /run/lock /var/lib/nfs/sm /var/lib/nfs/sm.bak /var/lib/nfs/rpc_pipefs /var/lib/nfs/v4recovery \
    /var/lib/nfs/nfsdcld /outer /mnt/a /mnt/b /srv/export
: >/var/lib/nfs/etab
: >/var/lib/nfs/rmtab
: >/var/lib/nfs/state
mount -t hostfs none /outer -o /
hostname lab
ip link set lo up

mount -t ext4 /dev/ubda /srv/export
for module in nfsd nfs nfsv3 nfsv4 lockd; do modprobe "$module"; done
mount -t nfsd none /proc/fs/nfsd
rpcbind -w
rpc.statd --no-notify
# A client that died holds its state for as long as the lease: the shortest that the server takes.
echo 10 >/proc/fs/nfsd/nfsv4leasetime
echo 10 >/proc/fs/nfsd/nfsv4gracetime
exportfs -i -o rw,sync,fsid=0,no_root_squash,no_subtree_check,insecure 127.0.0.0/8:/srv/export
rpc.nfsd 8
rpc.mountd

case "$VERS" in 3) source=127.0.0.1:/srv/export ;; *) source=127.0.0.1:/ ;; esac
for host in a b; do
    mount -t nfs -o "vers=$VERS,nosharecache${OPTS:+,$OPTS}" "$source" "/mnt/$host" || say "mount $host failed"
    mkdir -p "/outer$LAB/mounts/$host"
    mount --bind "/mnt/$host" "/outer$LAB/mounts/$host"
done
mount -t proc none /outer/proc
mount --bind /dev/shm /outer/dev/shm
# An @ stands for the space that the kernel would take for the end of the word.
chroot /outer $(echo "$JOB" | tr @ " ") 2>&1
echo $? >"/outer$LAB/status"
sync
echo o >/proc/sysrq-trigger
sleep 5
