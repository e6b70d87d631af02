"""The sweep's inner loop in C, compiled on first use where a C compiler is at hand; without one NumPy does the same.

The library is kept in the user's cache folder, by a name made of its source and the processor's features, so that a home
shared by different machines never loads code that one of them cannot run. `SPOOL_CHECK_NATIVE=0` turns it off.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

# One loop body for float, double, and a float device output against a double bench (`z` is the bench in the device's
# dtype). Blocks of 512 keep the intermediate arrays in the first-level cache, and each
# loop small enough to be vectorised. Sums and ULP errors are in double; everything else in the type at hand, in the
# order of operations of the NumPy kernels, so that both give the same counts and maxima.
_SOURCE = r"""
#include <stdint.h>
#include <string.h>
#define BLOCK 512
#define SIMD _Pragma("omp simd")
#define REDUCE(...) _Pragma(#__VA_ARGS__)
#define SWEEP(NAME, N, T, U, I, EXPONENT, ONE, ROUNDED) \
int64_t NAME##_special(const N *n, const T *b, int64_t size, double largest_) { \
    const T largest = (T)largest_; \
    I bad = 0; \
    const T infinity = (T)(1.0 / 0.0); \
    REDUCE(omp simd reduction(+:bad)) \
    for (int64_t i = 0; i < size; i++) { \
        T a = n[i] < 0 ? -n[i] : n[i], m = b[i] < 0 ? -b[i] : b[i]; \
        bad += (a < infinity) & (m < largest) ? 0 : 1; \
    } \
    return bad; \
} \
void NAME(const N *n, const T *b, const T *r, int64_t size, const double *p, int sides, int64_t *c, double *f) { \
    const T eps = (T)p[0], sv = (T)p[1], satol = (T)p[2], batol = (T)p[3], rtol = (T)p[4]; \
    const double ulp_limit = p[5], half_ulp = p[7]; \
    const T smallest = (T)p[6]; \
    const T h2 = (T)1e-2, h3 = (T)1e-3, h4 = (T)1e-4, h5 = (T)5e-3; \
    T err[BLOCK], rel[BLOCK], mag[BLOCK]; \
    for (int64_t at = 0; at < size; at += BLOCK) { \
        const int len = (int)(size - at < BLOCK ? size - at : BLOCK); \
        const N *x = n + at; const T *y = b + at, *z = r + at; (void)z; \
        T me = 0, mr = 0, mm = 0, mn = 0; \
        I above = 0, below = 0, unequal = 0, small = 0, sa = 0, ba = 0, over = 0, k2 = 0, k3 = 0, k4 = 0; \
        REDUCE(omp simd reduction(max:me,mr,mm) reduction(+:above,below,unequal)) \
        for (int i = 0; i < len; i++) { \
            T w = x[i], d = w - y[i], o = ROUNDED; \
            T e = d < 0 ? -d : d, m = y[i] < 0 ? -y[i] : y[i]; \
            T q = e / (m + eps); \
            err[i] = e; mag[i] = m; rel[i] = q; \
            me = e > me ? e : me; mr = q > mr ? q : mr; mm = m > mm ? m : mm; \
            above += w > o; below += w < o; unequal += w != y[i]; \
        } \
        double sq = 0, ss = 0, sr = 0; \
        REDUCE(omp simd reduction(max:mn) reduction(+:small,sa,ba,over,k2,k3,k4)) \
        for (int i = 0; i < len; i++) { \
            I is = mag[i] <= sv; \
            T q = rel[i], v = is ? (T)0 : q; \
            k2 += q < h2; k3 += q < h3; k4 += q < h4; \
            small += is; sa += is & (err[i] > satol); ba += is & (err[i] > batol); \
            over += v > rtol; mn = v > mn ? v : mn; \
            rel[i] = v; \
        } \
        REDUCE(omp simd reduction(+:sq,ss,sr)) \
        for (int i = 0; i < len; i++) { \
            double e = err[i], e2 = e * e, kept = mag[i] <= sv ? 0.0 : e2; \
            sq += kept; ss += e2 - kept; sr += (double)rel[i]; \
        } \
        double su = 0, mu = 0; int64_t ua = 0, far = 0; \
        REDUCE(omp simd reduction(max:mu) reduction(+:su,ua,far)) \
        for (int i = 0; i < len; i++) { \
            U bits; T unit; \
            memcpy(&bits, &mag[i], sizeof bits); \
            bits &= EXPONENT; \
            memcpy(&unit, &bits, sizeof unit); \
            unit = unit > smallest ? unit : smallest; \
            memcpy(&bits, &unit, sizeof bits); \
            bits = ONE - bits; \
            T inverse; \
            memcpy(&inverse, &bits, sizeof inverse); \
            double u = (double)err[i] * (double)inverse; \
            su += u; mu = u > mu ? u : mu; ua += u > ulp_limit; \
            far += (u > half_ulp) & (err[i] >= h3 * (mag[i] + eps)); \
        } \
        c[0] += above; c[1] += below; c[2] += unequal; c[3] += k2; c[4] += k3; c[5] += k4; \
        c[6] += small; c[7] += sa; c[8] += ba; c[9] += over; c[10] += ua; c[16] += far; \
        if ((double)me > f[0]) { \
            f[0] = me; int i = 0; while (err[i] != me) i++; c[11] = at + i; \
        } \
        if ((double)mr > f[1]) { \
            f[1] = mr; int i = 0; \
            while (i < len - 1 && err[i] / (mag[i] + eps) != mr) i++; \
            c[12] = at + i; \
        } \
        f[2] = mn > f[2] ? mn : f[2]; f[3] = mm > f[3] ? mm : f[3]; f[4] = mu > f[4] ? mu : f[4]; \
        f[5] += sq; f[6] += ss; f[7] += sr; f[8] += su; \
        if (!sides) continue; \
        T nh = x[0], nl = x[0], bh = y[0], bl = y[0], rm = 0; \
        double ns = 0, bs = 0, nn = 0, bb = 0, nb = 0; \
        I r3 = 0, r5 = 0, undefined = 0; \
        REDUCE(omp simd reduction(+:ns,bs,nn,bb,nb)) \
        for (int i = 0; i < len; i++) { \
            double a = x[i], o = y[i]; \
            ns += a; bs += o; nn += a * a; bb += o * o; nb += a * o; \
        } \
        REDUCE(omp simd reduction(max:nh,bh,rm) reduction(min:nl,bl) reduction(+:r3,r5,undefined)) \
        for (int i = 0; i < len; i++) { \
            nh = x[i] > nh ? x[i] : nh; nl = x[i] < nl ? x[i] : nl; \
            bh = y[i] > bh ? y[i] : bh; bl = y[i] < bl ? y[i] : bl; \
            T q = err[i] / mag[i]; \
            rm = q > rm ? q : rm; r3 += q < h3; r5 += q < h5; undefined += q != q; \
        } \
        c[13] += r3; c[14] += r5; c[15] += undefined; \
        f[9] = nh > f[9] ? nh : f[9]; f[10] = nl < f[10] ? nl : f[10]; \
        f[11] = bh > f[11] ? bh : f[11]; f[12] = bl < f[12] ? bl : f[12]; f[13] = rm > f[13] ? rm : f[13]; \
        f[14] += ns; f[15] += bs; f[16] += nn; f[17] += bb; f[18] += nb; \
    } \
}
SWEEP(sweep_float, float, float, uint32_t, int32_t, 0x7F800000u, 0x7F000000u, z[i])
SWEEP(sweep_double, double, double, uint64_t, int64_t, 0x7FF0000000000000ull, 0x7FE0000000000000ull, z[i])
SWEEP(sweep_mixed, float, double, uint64_t, int64_t, 0x7FF0000000000000ull, 0x7FE0000000000000ull, (double)(float)y[i])
"""
_FLAGS = (
    "-O3",
    "-march=native",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-signed-zeros",
    "-fopenmp-simd",
    "-shared",
    "-fPIC",
)
COUNTS, FIGURES = 17, 19


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled loops; None where they are switched off or cannot be had."""
    if os.environ.get("SPOOL_CHECK_NATIVE") == "0":
        return None
    try:
        loaded = ctypes.CDLL(str(_compiled()))
    except (OSError, RuntimeError, subprocess.SubprocessError):
        return None
    pointer, integer, number = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
    for name in ("sweep_float", "sweep_double", "sweep_mixed"):
        loop, special = getattr(loaded, name), getattr(loaded, f"{name}_special")
        loop.argtypes = (pointer, pointer, pointer, integer, pointer, ctypes.c_int, pointer, pointer)
        loop.restype = None
        special.argtypes = (pointer, pointer, integer, number)
        special.restype = integer
    return loaded


def _compiled() -> Path:
    """The library's file, compiled if it is not there yet."""
    identity = "\n".join((_SOURCE, *_FLAGS, _processor()))
    name = f"sweep-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.so"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "spool-check"
    cache.mkdir(parents=True, exist_ok=True, mode=0o700)
    if cache.stat().st_uid != os.getuid():
        raise PermissionError(f"{cache} belongs to somebody else")
    path = cache / name
    if not path.exists():
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            raise FileNotFoundError("no C compiler")
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            source, made = Path(folder) / "sweep.c", Path(folder) / name
            source.write_text(_SOURCE, encoding="ascii")
            command = [compiler, *_FLAGS, "-o", str(made), str(source)]
            subprocess.run(command, check=True, capture_output=True, timeout=60)
            os.replace(made, path)
    return path


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return next((line for line in text.splitlines() if line.startswith(("flags", "Features"))), "")
