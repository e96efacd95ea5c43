// The C kernels of the metering benchmark. Each export runs once a call, takes
// nothing and returns a checksum, so that plain and metered code can be held
// against each other. They were written down before the metering was tuned, and
// stand for what guests do: arithmetic, memory, branches, calls and tables.
// kernels.wasm is made by clang and lld 14 in this directory:
//
//	clang --target=wasm32 -O2 -ffreestanding -nostdlib -Wl,--no-entry,--strip-all,--stack-first -o kernels.wasm kernels.c
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;

#define EXPORT(name) __attribute__((export_name(#name))) u32 name(void)
#define NOINLINE __attribute__((noinline))

static u8 bytes[1 << 18];
static u32 words[1 << 16];
static u32 other[1 << 16];
static double reals[3][96 * 96];
static float singles[3][64 * 64];

static u32 seed;
static inline u32 next(void) {
  seed ^= seed << 13;
  seed ^= seed >> 17;
  seed ^= seed << 5;
  return seed;
}
static void fill(u32 *w, u32 n) {
  seed = 2463534242u;
  for (u32 i = 0; i < n; i++) w[i] = next();
}
static u32 bits(double d) {
  union { double d; u64 u; } x = {d};
  return (u32)(x.u >> 32) ^ (u32)x.u;
}

static NOINLINE u32 fibonacci(u32 n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
EXPORT(fib) { return fibonacci(27); }

static NOINLINE u32 ack(u32 m, u32 n) {
  if (!m) return n + 1;
  if (!n) return ack(m - 1, 1);
  return ack(m - 1, ack(m, n - 1));
}
EXPORT(ackermann) { return ack(2, 300); }

EXPORT(sieve) {
  u32 count = 0;
  for (u32 i = 0; i < sizeof bytes; i++) bytes[i] = 1;
  for (u32 i = 2; i < sizeof bytes; i++) {
    if (!bytes[i]) continue;
    count++;
    for (u32 j = i + i; j < sizeof bytes; j += i) bytes[j] = 0;
  }
  return count;
}

EXPORT(matmul_f64) {
  const int n = 96;
  for (int i = 0; i < n * n; i++) reals[0][i] = i % 7, reals[1][i] = i % 11, reals[2][i] = 0;
  for (int i = 0; i < n; i++)
    for (int k = 0; k < n; k++) {
      double a = reals[0][i * n + k];
      for (int j = 0; j < n; j++) reals[2][i * n + j] += a * reals[1][k * n + j];
    }
  return bits(reals[2][n * n - 1]);
}

EXPORT(matmul_f32) {
  const int n = 64;
  for (int i = 0; i < n * n; i++) singles[0][i] = i % 7, singles[1][i] = i % 11;
  float total = 0;
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++) {
      float sum = 0;
      for (int k = 0; k < n; k++) sum += singles[0][i * n + k] * singles[1][k * n + j];
      total += sum;
    }
  return bits(total);
}

EXPORT(matmul_i32) {
  const u32 n = 80;
  fill(words, n * n);
  for (u32 i = 0; i < n; i++)
    for (u32 j = 0; j < n; j++) {
      u32 sum = 0;
      for (u32 k = 0; k < n; k++) sum += words[i * n + k] * words[k * n + j];
      other[i * n + j] = sum;
    }
  return other[n * n - 1];
}

EXPORT(mandelbrot) {
  u32 inside = 0;
  for (int y = 0; y < 96; y++)
    for (int x = 0; x < 96; x++) {
      double cr = x / 48.0 - 1.5, ci = y / 48.0 - 1.0, r = 0, i = 0;
      int n = 0;
      while (n < 100 && r * r + i * i < 4) {
        double t = r * r - i * i + cr;
        i = 2 * r * i + ci;
        r = t;
        n++;
      }
      inside += n;
    }
  return inside;
}

EXPORT(nbody) {
  static double p[5][3], v[5][3], m[5];
  for (int i = 0; i < 5; i++) {
    m[i] = 1.0 / (i + 1);
    for (int k = 0; k < 3; k++) p[i][k] = i * 1.5 + k * 0.3, v[i][k] = (i - 2) * 0.1;
  }
  for (int step = 0; step < 4000; step++) {
    for (int i = 0; i < 5; i++)
      for (int j = i + 1; j < 5; j++) {
        double d[3], r2 = 0.01;
        for (int k = 0; k < 3; k++) d[k] = p[i][k] - p[j][k], r2 += d[k] * d[k];
        double f = 0.001 / (r2 * __builtin_sqrt(r2));
        for (int k = 0; k < 3; k++) v[i][k] -= d[k] * m[j] * f, v[j][k] += d[k] * m[i] * f;
      }
    for (int i = 0; i < 5; i++)
      for (int k = 0; k < 3; k++) p[i][k] += 0.001 * v[i][k];
  }
  return bits(p[0][0]);
}

EXPORT(spectral) {
  const int n = 96;
  double *u = reals[0], *v = reals[1];
  for (int i = 0; i < n; i++) u[i] = 1;
  for (int round = 0; round < 6; round++) {
    for (int i = 0; i < n; i++) {
      double s = 0;
      for (int j = 0; j < n; j++) s += u[j] / ((i + j) * (i + j + 1) / 2 + i + 1);
      v[i] = s;
    }
    double *t = u;
    u = v;
    v = t;
  }
  return bits(u[3]);
}

static NOINLINE void quick(u32 *a, i32 lo, i32 hi) {
  while (lo < hi) {
    u32 pivot = a[(lo + hi) >> 1];
    i32 i = lo, j = hi;
    while (i <= j) {
      while (a[i] < pivot) i++;
      while (a[j] > pivot) j--;
      if (i <= j) {
        u32 t = a[i];
        a[i++] = a[j];
        a[j--] = t;
      }
    }
    if (j - lo < hi - i) {
      quick(a, lo, j);
      lo = i;
    } else {
      quick(a, i, hi);
      hi = j;
    }
  }
}
EXPORT(quicksort) {
  fill(words, 20000);
  quick(words, 0, 19999);
  return words[10000];
}

EXPORT(heapsort) {
  const u32 n = 10000;
  fill(words, n);
  u32 *a = words;
  for (u32 start = n / 2, end = n; end > 1;) {
    u32 v;
    if (start) {
      v = a[--start];
    } else {
      v = a[--end];
      a[end] = a[0];
    }
    u32 i = start;
    for (u32 c; (c = 2 * i + 1) < end; i = c) {
      if (c + 1 < end && a[c + 1] > a[c]) c++;
      if (a[c] <= v) break;
      a[i] = a[c];
    }
    a[i] = v;
  }
  return a[n / 2];
}

EXPORT(crc32) {
  for (u32 i = 0; i < 256; i++) {
    u32 c = i;
    for (int k = 0; k < 8; k++) c = c & 1 ? 0xEDB88320u ^ (c >> 1) : c >> 1;
    words[i] = c;
  }
  u32 crc = ~0u;
  for (u32 i = 0; i < sizeof bytes; i++) crc = words[(crc ^ (i * 31)) & 255] ^ (crc >> 8);
  return ~crc;
}

EXPORT(sha256) {
  static const u32 k[64] = {
      0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
      0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
      0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
      0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
      0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
      0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
  u32 h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
#define ROR(x, n) ((x) >> (n) | (x) << (32 - (n)))
  for (u32 block = 0; block < 1000; block++) {
    u32 w[64], s[8];
    for (u32 i = 0; i < 16; i++) w[i] = block * 16 + i;
    for (int i = 16; i < 64; i++)
      w[i] = w[i - 16] + w[i - 7] + (ROR(w[i - 15], 7) ^ ROR(w[i - 15], 18) ^ w[i - 15] >> 3) + (ROR(w[i - 2], 17) ^ ROR(w[i - 2], 19) ^ w[i - 2] >> 10);
    for (int i = 0; i < 8; i++) s[i] = h[i];
    for (int i = 0; i < 64; i++) {
      u32 t1 = s[7] + (ROR(s[4], 6) ^ ROR(s[4], 11) ^ ROR(s[4], 25)) + ((s[4] & s[5]) ^ (~s[4] & s[6])) + k[i] + w[i];
      u32 t2 = (ROR(s[0], 2) ^ ROR(s[0], 13) ^ ROR(s[0], 22)) + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
      s[7] = s[6], s[6] = s[5], s[5] = s[4], s[4] = s[3] + t1, s[3] = s[2], s[2] = s[1], s[1] = s[0], s[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++) h[i] += s[i];
  }
  return h[0];
}

EXPORT(fnv64) {
  u64 h = 0xcbf29ce484222325ull;
  for (u32 i = 0; i < 400000; i++) h = (h ^ (i & 255)) * 0x100000001b3ull;
  return (u32)(h ^ h >> 32);
}

EXPORT(collatz) {
  u32 longest = 0;
  for (u32 i = 1; i < 6000; i++) {
    u32 steps = 0;
    for (u64 n = i; n != 1; steps++) n = n & 1 ? 3 * n + 1 : n >> 1;
    if (steps > longest) longest = steps;
  }
  return longest;
}

EXPORT(levenshtein) {
  static u16 row[513];
  static u8 a[512], b[512];
  seed = 7;
  for (int i = 0; i < 512; i++) a[i] = next() & 7, b[i] = next() & 7;
  for (int j = 0; j <= 512; j++) row[j] = j;
  for (int i = 0; i < 512; i++) {
    u16 diagonal = row[0];
    row[0] = i + 1;
    for (int j = 0; j < 512; j++) {
      u16 best = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      if (row[j] + 1 < best) best = row[j] + 1;
      if (diagonal + 1 < best) best = diagonal + 1;
      row[j + 1] = best;
    }
  }
  return row[512];
}

EXPORT(floyd_warshall) {
  const u32 n = 64;
  fill(words, n * n);
  for (u32 i = 0; i < n * n; i++) words[i] &= 1023;
  for (u32 k = 0; k < n; k++)
    for (u32 i = 0; i < n; i++)
      for (u32 j = 0; j < n; j++) {
        u32 way = words[i * n + k] + words[k * n + j];
        if (way < words[i * n + j]) words[i * n + j] = way;
      }
  u32 sum = 0;
  for (u32 i = 0; i < n * n; i++) sum += words[i];
  return sum;
}

static NOINLINE u32 place(u32 all, u32 columns, u32 left, u32 right) {
  if (columns == all) return 1;
  u32 count = 0;
  for (u32 free = all & ~(columns | left | right); free;) {
    u32 bit = free & -free;
    free ^= bit;
    count += place(all, columns | bit, (left | bit) << 1, (right | bit) >> 1);
  }
  return count;
}
EXPORT(nqueens) { return place((1 << 9) - 1, 0, 0, 0); }

EXPORT(hash_table) {
  const u32 mask = (1 << 16) - 1;
  for (u32 i = 0; i <= mask; i++) words[i] = 0;
  seed = 99;
  u32 probes = 0;
  for (u32 i = 0; i < 40000; i++) {
    u32 key = next() | 1, at = key * 2654435769u >> 16;
    while (words[at] && words[at] != key) at = (at + 1) & mask, probes++;
    words[at] = key;
  }
  return probes;
}

EXPORT(string_search) {
  seed = 5;
  for (u32 i = 0; i < 1 << 17; i++) bytes[i] = 'a' + (next() & 3);
  static const u8 needle[] = "abcabcad";
  u32 found = 0;
  for (u32 i = 0; i + 8 <= 1 << 17; i++) {
    u32 k = 0;
    while (k < 8 && bytes[i + k] == needle[k]) k++;
    found += k == 8 ? 1000 : k;
  }
  return found;
}

EXPORT(base64) {
  static const u8 digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  u32 out = 0, sum = 0;
  for (u32 i = 0; i < 120000; i += 3) {
    u32 v = (i & 255) << 16 | (i * 7 & 255) << 8 | (i * 13 & 255);
    for (int s = 18; s >= 0; s -= 6) bytes[out++ & 0xFFFF] = digits[v >> s & 63];
  }
  for (u32 i = 0; i < 0x10000; i++) sum = sum * 31 + bytes[i];
  return sum;
}

// A byte code interpreter: one big switch in a loop.
EXPORT(interpreter) {
  static const u8 code[] = {0, 1, 3, 2, 4, 5, 1, 6, 2, 3, 7, 4, 0, 5, 8, 9};
  u32 a = 1, b = 2, c = 3, pc = 0;
  for (u32 i = 0; i < 1024; i++) words[i] = 0;
  for (u32 steps = 0; steps < 300000; steps++) {
    switch (code[pc++]) {
      case 0: a += b; break;
      case 1: b ^= c; break;
      case 2: c = a * 3; break;
      case 3: a = a << 1 | a >> 31; break;
      case 4: b -= a; break;
      case 5: c |= 1; break;
      case 6: if (a & 1) b++; break;
      case 7: words[a & 1023] = b; break;
      case 8: c += words[b & 1023]; break;
      case 9: pc = 0; break;
    }
  }
  return a ^ b ^ c;
}

typedef u32 (*operation)(u32, u32);
static u32 op0(u32 a, u32 b) { return a + b; }
static u32 op1(u32 a, u32 b) { return a ^ b * 3; }
static u32 op2(u32 a, u32 b) { return a - (b >> 3); }
static u32 op3(u32 a, u32 b) { return a * b + 1; }
static const operation volatile operations[4] = {op0, op1, op2, op3};
EXPORT(indirect) {
  u32 a = 1;
  for (u32 i = 0; i < 200000; i++) a = operations[i & 3](a, i);
  return a;
}

// Binary trees in an arena, walked by recursion.
struct node { struct node *l, *r; u32 v; };
static struct node arena[1 << 13];
static u32 used;
static NOINLINE struct node *grow(u32 depth) {
  struct node *n = &arena[used++];
  n->v = used;
  n->l = depth ? grow(depth - 1) : 0;
  n->r = depth ? grow(depth - 1) : 0;
  return n;
}
static NOINLINE u32 walk(const struct node *n) { return n ? n->v + walk(n->l) - walk(n->r) : 1; }
EXPORT(trees) {
  u32 sum = 0;
  for (int i = 0; i < 12; i++) {
    used = 0;
    sum = sum * 7 + walk(grow(11));
  }
  return sum;
}

EXPORT(life) {
  const int n = 96;
  u8 *a = bytes, *b = bytes + n * n;
  seed = 1;
  for (int i = 0; i < n * n; i++) a[i] = next() & 1;
  for (int round = 0; round < 8; round++) {
    for (int y = 1; y < n - 1; y++)
      for (int x = 1; x < n - 1; x++) {
        const u8 *p = a + y * n + x;
        int around = p[-1] + p[1] + p[-n - 1] + p[-n] + p[-n + 1] + p[n - 1] + p[n] + p[n + 1];
        b[y * n + x] = around == 3 || (around == 2 && *p);
      }
    u8 *t = a;
    a = b;
    b = t;
  }
  u32 sum = 0;
  for (int i = 0; i < n * n; i++) sum += a[i];
  return sum;
}

// Varints, as wire formats have them: short loops with an early way out.
EXPORT(varint) {
  u32 at = 0;
  seed = 3;
  for (u32 i = 0; i < 40000; i++) {
    u32 v = next() >> (next() & 31);
    while (v >= 128) bytes[at++ & 0x3FFFF] = v | 128, v >>= 7;
    bytes[at++ & 0x3FFFF] = v;
  }
  u32 sum = 0;
  for (u32 i = 0; i < at;) {
    u32 v = 0, shift = 0;
    for (;;) {
      u8 b = bytes[i++ & 0x3FFFF];
      v |= (b & 127u) << shift;
      if (b < 128 || shift > 28) break;
      shift += 7;
    }
    sum += v;
  }
  return sum;
}
