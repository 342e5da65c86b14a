// The profiler extension, which has a separate function table, errors and argument structs. The
// declarations use the names of the published layout. A plugin checks the size of each struct.
#include <stdlib.h>
#include <string.h>

#include "call.h"

enum { EXTENSION_PROFILER = 1, UNKNOWN = 2, UNIMPLEMENTED = 12 };

typedef struct { size_t struct_size; void *priv; void *error; } Error_Destroy_Args;
typedef struct { size_t struct_size; void *priv; const void *error; const char *message; size_t message_size; } Error_Message_Args;
typedef struct { size_t struct_size; void *priv; const void *error; int code; } Error_GetCode_Args;
typedef struct { size_t struct_size; const char *options; size_t options_size; void *profiler; } Create_Args;
typedef struct { size_t struct_size; void *profiler; } Profiler_Args; // for destroy, start and stop
typedef struct { size_t struct_size; void *profiler; const uint8_t *buffer; size_t buffer_size_in_bytes; } CollectData_Args;

typedef struct {
  size_t struct_size;
  void *priv;
  void (*error_destroy)(Error_Destroy_Args *);
  void (*error_message)(Error_Message_Args *);
  void *(*error_get_code)(Error_GetCode_Args *);
  void *(*create)(Create_Args *);
  void *(*destroy)(Profiler_Args *);
  void *(*start)(Profiler_Args *);
  void *(*stop)(Profiler_Args *);
  void *(*collect_data)(CollectData_Args *);
} profiler_table;

typedef struct { size_t struct_size; int type; void *next; const profiler_table *profiler_api; } profiler_extension;

#define SIZED(type, last, ...) {.struct_size = TPS_SIZE(type, last), __VA_ARGS__}

static const profiler_table *table_of(const tps_Api *api) {
  for (const tps_Extension_Base *x = api->extension_start; x; x = x->next) {
    if (x->type != EXTENSION_PROFILER || x->struct_size < TPS_SIZE(profiler_extension, profiler_api)) continue;
    const profiler_table *t = ((const profiler_extension *)x)->profiler_api;
    if (t && t->struct_size >= TPS_SIZE(profiler_table, collect_data) && t->error_destroy && t->error_message && t->error_get_code &&
        t->create && t->destroy && t->start && t->stop && t->collect_data)
      return t;
  }
  return NULL;
}

// Copies the code and the message of an error, and destroys the error.
static tps_fault take(const profiler_table *t, void *error) {
  if (!error) return (tps_fault){0};
  Error_GetCode_Args code = SIZED(Error_GetCode_Args, code, .error = error);
  Error_Message_Args text = SIZED(Error_Message_Args, message_size, .error = error);
  Error_Destroy_Args end = SIZED(Error_Destroy_Args, error, .error = error);
  void *worse = t->error_get_code(&code);
  if (worse) {
    Error_Destroy_Args a = SIZED(Error_Destroy_Args, error, .error = worse);
    t->error_destroy(&a);
  }
  t->error_message(&text);
  tps_fault f = {.code = worse || !code.code ? UNKNOWN : code.code};
  if (text.message && (f.text = malloc(text.message_size + 1))) {
    memcpy(f.text, text.message, text.message_size);
    f.n = text.message_size;
  }
  t->error_destroy(&end);
  return f;
}

tps_fault tps_profiler_start(const tps_Api *api, const char *options, size_t n, void **profiler) {
  *profiler = NULL;
  const profiler_table *t = table_of(api);
  if (!t) return (tps_fault){.code = UNIMPLEMENTED};
  Create_Args make = SIZED(Create_Args, profiler, .options = options, .options_size = n);
  tps_fault f = take(t, t->create(&make));
  if (f.code) return f;
  Profiler_Args start = SIZED(Profiler_Args, profiler, .profiler = make.profiler);
  f = take(t, t->start(&start));
  if (f.code) {
    tps_profiler_destroy(api, make.profiler);
    return f;
  }
  *profiler = make.profiler;
  return f;
}

tps_fault tps_profiler_stop(const tps_Api *api, void *profiler, tps_list *data) {
  *data = (tps_list){0};
  const profiler_table *t = table_of(api);
  Profiler_Args stop = SIZED(Profiler_Args, profiler, .profiler = profiler);
  tps_fault f = take(t, t->stop(&stop));
  if (f.code) return f;
  CollectData_Args a = SIZED(CollectData_Args, buffer_size_in_bytes, .profiler = profiler);
  f = take(t, t->collect_data(&a)); // the profiler owns the bytes
  if (!f.code && a.buffer) *data = (tps_list){a.buffer, a.buffer_size_in_bytes};
  return f;
}

void tps_profiler_destroy(const tps_Api *api, void *profiler) {
  const profiler_table *t = table_of(api);
  Profiler_Args a = SIZED(Profiler_Args, profiler, .profiler = profiler);
  tps_fault f = take(t, t->destroy(&a));
  free(f.text);
}
