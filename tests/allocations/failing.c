/* malloc and its family, one of whose calls fails on demand; preloaded into a Python that runs with
 * PYTHONMALLOC=malloc, so that Python's objects, NumPy's arrays and the kernels all pass here.
 *
 *     cc -shared -fPIC -O1 -fno-builtin failing.c -o failing.so -ldl
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

typedef struct _object PyObject; /* bound when first called: other programs are preloaded too */
extern PyObject *PyObject_CallNoArgs(PyObject *);

static void *(*real_malloc)(size_t);
static void *(*real_calloc)(size_t, size_t);
static void *(*real_realloc)(void *, size_t);
static void (*real_free)(void *);

/* What dlsym() asks for while it looks for the real ones; never given back. */
static _Alignas(16) char first_bytes[16384];
static size_t first_used;

static long live;                       /* blocks that are not freed */
static __thread long calls, fail_at;    /* 0: nothing fails */
static __thread int armed, all_of_them; /* from `fail_at` on, not only that one */

static void *first(size_t size) {
    void *p = first_bytes + first_used;
    first_used += (size + 15) & ~(size_t)15;
    return first_used <= sizeof first_bytes ? p : NULL;
}

static int is_first(const void *p) {
    return (const char *)p >= first_bytes && (const char *)p < first_bytes + sizeof first_bytes;
}

__attribute__((constructor)) static void find(void) {
    static int begun;
    if (begun) return;
    begun = 1;
    *(void **)&real_calloc = dlsym(RTLD_NEXT, "calloc");
    *(void **)&real_realloc = dlsym(RTLD_NEXT, "realloc");
    *(void **)&real_free = dlsym(RTLD_NEXT, "free");
    *(void **)&real_malloc = dlsym(RTLD_NEXT, "malloc");
}

static int fails(void) {
    if (!armed) return 0;
    calls++;
    return fail_at && (all_of_them ? calls >= fail_at : calls == fail_at);
}

static void *counted(void *p) {
    if (p) __atomic_add_fetch(&live, 1, __ATOMIC_RELAXED);
    return p;
}

void *malloc(size_t size) {
    if (!real_malloc) find();
    if (!real_malloc) return first(size);
    return fails() ? NULL : counted(real_malloc(size));
}

void *calloc(size_t count, size_t size) {
    if (!real_malloc) find();
    if (!real_malloc) return first(count * size); /* static, so zero */
    return fails() ? NULL : counted(real_calloc(count, size));
}

void *realloc(void *p, size_t size) {
    if (!p) return malloc(size);
    if (is_first(p) || !real_malloc) {
        void *to = malloc(size);
        if (to) memcpy(to, p, size); /* reads on in first_bytes, which it may */
        return to;
    }
    return fails() ? NULL : real_realloc(p, size);
}

void free(void *p) {
    if (!p || is_first(p)) return;
    __atomic_sub_fetch(&live, 1, __ATOMIC_RELAXED);
    real_free(p);
}

long failing_live(void) { return live; }

/* How often memory was asked for in the last call. */
long failing_calls(void) { return calls; }

/* Call `function` so that its n-th request for memory fails, and with `all` every one after it. */
PyObject *failing_call(PyObject *function, long n, int all) {
    PyObject *result;
    calls = 0;
    fail_at = n;
    all_of_them = all;
    armed = 1;
    result = PyObject_CallNoArgs(function);
    armed = 0;
    return result;
}
