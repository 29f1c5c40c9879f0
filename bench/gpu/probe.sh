#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prints what the benchmarks in this folder and the local cluster need to know of a machine. It changes nothing: what it
# tries, it tries in namespaces of its own, which end with it.
set -u

section() { printf '\n== %s ==\n' "$1"; }
try() { printf '$ %s\n' "$*"; timeout 30 "$@" 2>&1 | head -n "${LINES_MAX:-25}"; }
have() { for name in "$@"; do printf '%-22s %s\n' "$name" "$(command -v "$name" || echo -)"; done; }

section system
try uname -a
try cat /proc/cmdline
head -4 /etc/os-release
nproc; free -m | head -2
grep -m1 'model name' /proc/cpuinfo
try lscpu -e=CPU,CORE,SOCKET,NODE
id; grep -E 'Cap(Eff|Bnd)|Seccomp:|NoNewPrivs' /proc/self/status
ulimit -n; ulimit -u; ulimit -l
tr '\0' ' ' < /proc/1/cmdline; echo
df -h / /tmp /dev/shm /run /sys/fs/cgroup 2>/dev/null
grep -vE ' (proc|sysfs|devpts|mqueue|debugfs|tracefs) ' /proc/self/mountinfo
ls -ld /lib /lib64 /bin /sbin /usr/lib64 2>/dev/null

section programs
have python3 pip gcc cc g++ nvcc make mpicc mpirun mpiexec ompi_info orted ssh sshd iptables iptables-nft iptables-legacy nft ip runc crun \
  conntrack modprobe mount unshare nsenter zstd xz tar curl openssl nvidia-smi nvidia-ctk nvidia-container-cli ldconfig taskset numactl \
  ethtool socat setsid busybox kmod sysctl losetup mkfs.ext4 perf strace

section cgroups
try cat /proc/self/cgroup
try ls /sys/fs/cgroup
try cat /sys/fs/cgroup/cgroup.controllers /sys/fs/cgroup/cgroup.subtree_control
try cat /sys/fs/cgroup/cgroup.procs
probe=/sys/fs/cgroup/trireme-probe
if mkdir $probe; then
  cat $probe/cgroup.controllers
  rmdir $probe
fi

section kernel
for file in overlay veth bridge br_netfilter nf_tables nf_conntrack nf_nat ip_tables iptable_nat xt_comment xt_MARK nft_compat nft_chain_nat fuse; do
  printf '%-16s loaded=%s sysmodule=%s\n' $file "$(grep -c "^$file " /proc/modules 2>/dev/null || echo no)" "$(test -d /sys/module/$file && echo yes || echo no)"
done
ls -d "/lib/modules/$(uname -r)" 2>&1
grep -E 'overlay|fuse|tmpfs|bpf' /proc/filesystems
zcat /proc/config.gz 2>/dev/null | grep -E 'CONFIG_(BRIDGE|BRIDGE_NETFILTER|VETH|OVERLAY_FS|NF_TABLES|NFT_[A-Z_]*|NETFILTER_XT_[A-Z_]*|IP_NF_[A-Z_]*|CGROUP_[A-Z]*|MEMCG|SECCOMP[A-Z_]*|VXLAN|DUMMY|IFB|NET_SCH_NETEM|BPF_SYSCALL|NF_CONNTRACK|NF_NAT|CFS_BANDWIDTH|USER_NS|SYSVIPC|CROSS_MEMORY_ATTACH|PREEMPT[A-Z_]*|HZ)=' | tr '\n' ' '
echo
ls /proc/sys/net/bridge 2>&1
try cat /proc/sys/net/ipv4/ip_forward /proc/sys/kernel/yama/ptrace_scope /proc/sys/vm/overcommit_memory /proc/sys/vm/panic_on_oom /proc/sys/kernel/pid_max
try unshare -n true
try unshare -m true
try unshare -C true
try unshare --user true
try cat /proc/net/dev
try cat /etc/hosts /etc/resolv.conf /etc/nsswitch.conf

section overlay
scratch=$(mktemp -d)
mkdir "$scratch"/{lower,upper,work,merged}
if mount -t overlay overlay -o "lowerdir=/usr:$scratch/lower,upperdir=$scratch/upper,workdir=$scratch/work" "$scratch/merged"; then
  ls "$scratch/merged" | head -3
  umount "$scratch/merged"
fi
if mount -t overlay overlay -o "lowerdir=/,upperdir=$scratch/upper,workdir=$scratch/work" "$scratch/merged"; then
  echo 'overlay over / works'; ls "$scratch/merged" | tr '\n' ' '
  umount "$scratch/merged"
fi
rm -rf "$scratch"

section 'Open MPI'
LINES_MAX=3 try mpirun --version
ls -l "$(command -v mpirun)" "$(command -v orted)" /etc/alternatives/mpi* /etc/alternatives/libmpi* 2>/dev/null
ldconfig -p | grep -E 'libmpi\.|libopen-|libpmix|libucp|libucs|libfabric|libibverbs|libpsm' 
ls -d /etc/openmpi* /usr/lib/x86_64-linux-gnu/openmpi* /usr/lib/x86_64-linux-gnu/pmix* /usr/lib/x86_64-linux-gnu/ucx 2>/dev/null
grep -vE '^ *(#|$)' /etc/openmpi/*.conf 2>/dev/null
ompi_info --parsable 2>/dev/null | grep -E '^mca:(btl|pml|mtl|osc|coll):[^:]*:version|^build|^compiler:c:|ident|thread|config:cli|prefix' | cut -c1-200 | head -60
LINES_MAX=12 try timeout 20 mpirun --allow-run-as-root --oversubscribe -np 2 hostname
LINES_MAX=12 try timeout 20 env OMPI_MCA_btl=self,tcp mpirun --allow-run-as-root --oversubscribe -np 2 hostname

section python
ls -l "$(command -v python3)"; readlink -f "$(command -v python3)"
timeout 100 python3 - <<'PYTHON'
import importlib, os, platform, sys
print(sys.version, sys.executable, sys.prefix, sys.base_prefix)
print('libc', platform.libc_ver())
for name in ('mpi4py', 'numpy', 'torch', 'horovod', 'cupy', 'jax', 'transformers', 'torchvision', 'tiktoken', 'cloudpickle'):
    try:
        module = importlib.import_module(name) if name in ('mpi4py', 'numpy', 'torch') else importlib.util.find_spec(name)
        print(name, getattr(module, '__version__', '') or bool(module), getattr(module, '__file__', getattr(module, 'origin', '')))
    except Exception as error:
        print(name, 'no:', error)
try:
    import torch, torch.distributed as dist
    print('threads', torch.get_num_threads(), 'mpi', dist.is_mpi_available(), 'gloo', dist.is_gloo_available(), 'nccl', dist.is_nccl_available())
    print('cuda', torch.version.cuda, torch.cuda.is_available(), torch.cuda.device_count(), torch.cuda.get_device_name(0) if torch.cuda.is_available() else '')
    if torch.cuda.is_available():
        x = torch.ones(8, device='cuda'); print(float(x.sum()))
        for line in open('/proc/self/maps'):
            part = line.split()
            if len(part) > 5 and ('cuda' in part[5] or 'nvidia' in part[5] or '/nccl' in part[5]):
                print(part[5]) if part[5] not in globals().setdefault('shown', set()) and not globals()['shown'].add(part[5]) else None
        print('open files', sorted({os.readlink(f'/proc/self/fd/{fd}') for fd in os.listdir('/proc/self/fd') if os.path.exists(f'/proc/self/fd/{fd}')}))
    print(torch.__config__.show())
except Exception as error:
    print('torch:', error)
PYTHON
timeout 20 python3 -c 'import ctypes; l = ctypes.CDLL("libmpi.so.40"); b = ctypes.create_string_buffer(8192); n = ctypes.c_int(); l.MPI_Get_library_version(b, ctypes.byref(n)); print(b.value.decode())' 2>&1 | head -3
env | grep -E '^(PATH|LD_LIBRARY_PATH|PYTHON|CUDA|NVIDIA|OMPI|OMP|VIRTUAL|HOME|OUT)' 
ls -ld /opt/* /opt/torch/.venv/lib/python3*/site-packages 2>/dev/null | head -20
timeout 30 du -xsh /usr /opt /usr/local /var 2>/dev/null
ls /usr/share/dict /usr/share/doc 2>/dev/null | head -5; find /opt /usr/share -name '*.txt' -size +2M 2>/dev/null | head -5

section compiler
echo 'int main(void) { return 0; }' > /tmp/probe.c
LINES_MAX=3 try gcc --version
LINES_MAX=5 try mpicc --showme
gcc -O2 -o /tmp/probe.out /tmp/probe.c && /tmp/probe.out && echo 'gcc works'
printf '#include <mpi.h>\nint main(int c, char **v) { MPI_Init(&c, &v); MPI_Finalize(); return 0; }\n' > /tmp/probe.c
mpicc -O2 -o /tmp/probe.out /tmp/probe.c && echo 'mpicc works'
rm -f /tmp/probe.c /tmp/probe.out

section NVIDIA
LINES_MAX=20 try nvidia-smi
LINES_MAX=4 try nvidia-smi -L
ls -l /dev/nvidia* /dev/nvidia-caps 2>&1
ls -l /proc/driver/nvidia /proc/driver/nvidia/gpus 2>&1
cat /proc/driver/nvidia/version /proc/driver/nvidia/params 2>/dev/null | head -30
ls -lR /usr/local/nvidia 2>/dev/null | head -80
ldconfig -p | grep -E 'libcuda\.|libnvidia|libnvml' 
find / -xdev \( -name 'libcuda.so*' -o -name 'libnvidia-ml.so*' -o -name 'libnvidia-ptxjit*' \) 2>/dev/null | head -20
readlink -f "$(command -v nvidia-smi)"
ls /etc/cdi /var/run/cdi /usr/share/nvidia 2>&1 | head
lsmod 2>/dev/null | grep -i nvidia | head

section time
date; cat /proc/uptime
true
