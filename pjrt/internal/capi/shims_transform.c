// The extension for transforms, with which Go code can replace the program of a compilation. The
// declarations use the names of the published layout, version 1.
#include <stdlib.h>
#include <string.h>

#include "call.h"

enum { EXTENSION_TRANSFORM = 24, VERSION = 1, INTERNAL = 13 };

typedef struct { const char *data; size_t size; } text;
typedef struct {
  int64_t api_version;
  void *data;
  void (*cleanup_fn)(void *data);
  bool has_error;
  int code;
  text error_msg;
} version_and_error;
typedef struct { size_t struct_size; version_and_error header; text hlo_module, transformed_hlo_module; bool changed; } Transform_Args;
typedef struct callbacks {
  int64_t version;
  void (*dtor)(struct callbacks *);
  void (*transform_hlo_module)(struct callbacks *, Transform_Args *);
} callbacks;
typedef struct { size_t struct_size; const char *name; size_t name_size; int stage; callbacks *callbacks; } Register_Args;
typedef struct { size_t struct_size; int stage; const char *name; size_t name_size; callbacks *callbacks; bool cleared; } Clear_Args;
typedef struct {
  size_t struct_size;
  int type;
  void *next;
  void *(*register_xla_transform)(Register_Args *);
  void *(*clear_xla_transform)(Clear_Args *);
} transform_extension;

// There is one C function for each registered transform. A callback cannot identify its transform by its
// first argument, because the plugin may pass a copy of the struct.
enum { TRANSFORMS = 64 };
static struct { callbacks callbacks; tps_request_pipe *requests; bool live; } transforms[TRANSFORMS];
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static int last;

static void transform(int i, Transform_Args *a) {
  if (a->struct_size < TPS_SIZE(Transform_Args, changed)) return;
  a->changed = false;
  pthread_mutex_lock(&mu);
  tps_request_pipe *requests = transforms[i].live ? transforms[i].requests : NULL;
  pthread_mutex_unlock(&mu);
  if (!requests) return;
  if (a->hlo_module.size > INT32_MAX || (a->hlo_module.size && !a->hlo_module.data)) { // a proto has less than 2 GiB
    static const char none[] = "the plugin passed an invalid program";
    a->header.has_error = true, a->header.code = INTERNAL, a->header.error_msg = (text){none, sizeof none - 1};
    return;
  }
  tps_request q = {.kind = TPS_TRANSFORM, .value = {a->hlo_module.data, a->hlo_module.size}};
  tps_send_request(requests, &q);
  if (!q.has_reply) return; // the pipe is closed
  a->header.data = q.p;
  a->header.cleanup_fn = free;
  text answer = {q.p ? q.p : "", q.n};
  if (q.code) {
    a->header.has_error = true, a->header.code = INTERNAL, a->header.error_msg = answer;
  } else if (q.n) {
    a->changed = true, a->transformed_hlo_module = answer;
  }
}

#define ONE(i) static void transform_##i(callbacks *c, Transform_Args *a) { (void)c; transform(0##i, a); }
#define EIGHT(X, i) X(i##0) X(i##1) X(i##2) X(i##3) X(i##4) X(i##5) X(i##6) X(i##7)
#define ALL(X) EIGHT(X, 0) EIGHT(X, 1) EIGHT(X, 2) EIGHT(X, 3) EIGHT(X, 4) EIGHT(X, 5) EIGHT(X, 6) EIGHT(X, 7)
ALL(ONE)
#define NAME(i) transform_##i,
static void (*const functions[TRANSFORMS])(callbacks *, Transform_Args *) = {ALL(NAME)};

static const transform_extension *extension_of(const tps_Api *api) {
  for (const tps_Extension_Base *x = api->extension_start; x; x = x->next) {
    const transform_extension *t = (const transform_extension *)x;
    if (x->type == EXTENSION_TRANSFORM && x->struct_size >= TPS_SIZE(transform_extension, clear_xla_transform) &&
        t->register_xla_transform && t->clear_xla_transform)
      return t;
  }
  return NULL;
}

int tps_transform_register(const tps_Api *api, const char *name, size_t n, int stage, tps_request_pipe *requests, void **error) {
  *error = NULL;
  const transform_extension *t = extension_of(api);
  if (!t) return TPS_TRANSFORM_MISSING;
  pthread_mutex_lock(&mu);
  int i = 0;
  while (i < TRANSFORMS && transforms[(last + i) % TRANSFORMS].live) i++;
  if (i == TRANSFORMS) {
    pthread_mutex_unlock(&mu);
    return TPS_TRANSFORM_FULL;
  }
  i = (last + i) % TRANSFORMS;
  last = i + 1; // reuse the oldest free slot, because a thread may still call the callback of another one
  transforms[i].requests = requests, transforms[i].live = true;
  transforms[i].callbacks = (callbacks){.version = VERSION, .transform_hlo_module = functions[i]};
  pthread_mutex_unlock(&mu);
  Register_Args a = {.struct_size = TPS_SIZE(Register_Args, callbacks), .name = name, .name_size = n, .stage = stage,
    .callbacks = &transforms[i].callbacks};
  *error = t->register_xla_transform(&a);
  if (!*error) return i;
  pthread_mutex_lock(&mu);
  transforms[i].live = false;
  pthread_mutex_unlock(&mu);
  return TPS_TRANSFORM_FAILED;
}

void *tps_transform_clear(const tps_Api *api, const char *name, size_t n, int stage, int transform) {
  Clear_Args a = {.struct_size = TPS_SIZE(Clear_Args, cleared), .name = name, .name_size = n, .stage = stage,
    .callbacks = &transforms[transform].callbacks};
  void *e = extension_of(api)->clear_xla_transform(&a);
  pthread_mutex_lock(&mu);
  transforms[transform].live = false;
  pthread_mutex_unlock(&mu);
  return e;
}
