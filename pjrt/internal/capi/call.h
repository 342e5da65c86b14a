// Definitions that the shims share.
#ifndef TPUSTRATEGY_PJRT_CAPI_CALL_H_
#define TPUSTRATEGY_PJRT_CAPI_CALL_H_

#include <pthread.h>

#include "shims.h"

// A request to Go. It is on the stack of the thread that waits for the reply in tps_send_request. If the
// pipe is closed, the code is CANCELLED and has_reply is false.
typedef struct {
  int kind, timeout_ms;
  tps_str key, value;
  int code;  // of the reply
  char *p;   // malloced: the value or the text of an error
  size_t n;
  bool has_reply;
  pthread_mutex_t mu;
  pthread_cond_t replied;
} tps_request;
void tps_send_request(tps_request_pipe *s, tps_request *q);

typedef void *(*tps_fn)(void *);

// Returns the function in a slot, or NULL if the plugin's table is too short.
static inline tps_fn tps_find(const tps_Api *api, int slot) {
  size_t offset = sizeof(tps_Api) + (size_t)slot * sizeof(void *);
  if (offset + sizeof(void *) > api->struct_size) return NULL;
  return *(tps_fn *)((const char *)api + offset);
}

static inline void *tps_call(const tps_Api *api, int slot, void *args) {
  tps_fn f = tps_find(api, slot);
  return f ? f(args) : TPS_MISSING(slot);
}

// Destroys an error.
static inline void tps_discard(const tps_Api *api, void *e) {
  if (e && !((uintptr_t)e & 1)) tps_error_destroy(api, e);
}

// ARGS declares a zeroed argument struct a with its size; CALL makes the call.
#define ARGS(name, last, ...) \
  tps_##name##_Args a = {.struct_size = TPS_SIZE(tps_##name##_Args, last), __VA_ARGS__}
#define CALL(name) tps_call(api, TPS_SLOT_##name, &a)

// Shims with one handle as argument and one field as result.
#define GET(fn, name, in, field, type)               \
  void *fn(const tps_Api *api, void *h, type *out) { \
    ARGS(name, field, .in = h);                      \
    void *e = CALL(name);                            \
    *out = a.field;                                  \
    return e;                                        \
  }
#define GET_STR(fn, name, in, field)                             \
  void *fn(const tps_Api *api, void *h, tps_str *out) {          \
    ARGS(name, field##_size, .in = h);                           \
    void *e = CALL(name);                                        \
    *out = e ? (tps_str){0} : (tps_str){a.field, a.field##_size}; \
    return e;                                                    \
  }
#define GET_LIST(fn, name, in, field, count, last)               \
  void *fn(const tps_Api *api, void *h, tps_list *out) {         \
    ARGS(name, last, .in = h);                                   \
    void *e = CALL(name);                                        \
    *out = e ? (tps_list){0} : (tps_list){a.field, a.count};     \
    return e;                                                    \
  }
#define GET_BLOB(fn, name, in, owner_field)                      \
  void *fn(const tps_Api *api, void *h, tps_blob *out) {         \
    ARGS(name, owner_field##_deleter, .in = h);                  \
    void *e = CALL(name);                                        \
    *out = e ? (tps_blob){0}                                     \
             : (tps_blob){a.owner_field, a.owner_field##_deleter, a.serialized_bytes, a.serialized_bytes_size}; \
    return e;                                                    \
  }
#define DESTROY(fn, name, in)                                    \
  void *fn(const tps_Api *api, void *h) {                        \
    ARGS(name, in, .in = h);                                     \
    return CALL(name);                                           \
  }

#endif
