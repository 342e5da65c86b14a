// There is one shim per PJRT function. The argument struct is on the C stack, so a call costs one cgo
// call and no allocation. A shim returns NULL for success, the plugin's error object, or an odd number
// that identifies a missing slot (see TPS_MISSING). Results are zero on failure.
#ifndef TPUSTRATEGY_PJRT_CAPI_SHIMS_H_
#define TPUSTRATEGY_PJRT_CAPI_SHIMS_H_

#include "abi.h"

// Slot numbers, in table order.
enum {
#define TPS_BOUND(name, minor) TPS_SLOT_##name,
#define TPS_UNBOUND(name, minor, reason) TPS_SLOT_##name,
#include "slots.h"
#undef TPS_BOUND
#undef TPS_UNBOUND
  TPS_SLOT_COUNT
};

// The error value for a missing slot. It is odd, so that it differs from all addresses of objects.
#define TPS_MISSING(slot) ((void *)(uintptr_t)((slot) * 2 + 1))

typedef struct { const char *p; size_t n; } tps_str;
typedef struct { const void *p; size_t n; } tps_list;
typedef struct { void *owner; void (*drop)(void *); const char *p; size_t n; } tps_blob;

// Loading. On failure, tps_open returns NULL and a malloced message.
void *tps_open(const char *path, char **err);
void *tps_api_of(void *lib, char **err);
const char *tps_slot_name(int slot);
int tps_slot_minor(int slot);
int tps_slot_bound(int slot);
const char *tps_slot_reason(int slot);

// Errors.
int tps_error_code(const tps_Api *api, void *err);
tps_str tps_error_text(const tps_Api *api, void *err);
void tps_error_destroy(const tps_Api *api, void *err);
size_t tps_extensions(const tps_Api *api, int *types, size_t cap);

void *tps_plugin_initialize(const tps_Api *api);
void *tps_plugin_attributes(const tps_Api *api, tps_list *out);

// Events. tps_event_notify writes {slot, error} to fd when the event is ready.
void tps_event_destroy(const tps_Api *api, void *event);
void *tps_event_notify(const tps_Api *api, void *event, int fd, uint64_t slot);

// Requests of the plugin to Go: the callbacks of a key-value store and of transforms. They can run on
// any thread, also during a call of this package. A callback writes the address of its request to fd
// and waits for tps_request_reply, which copies its arguments. After tps_request_pipe_close nothing is
// written. A pipe object is never freed, because a thread of the plugin may still use it.
typedef struct tps_request_pipe tps_request_pipe;
enum { TPS_GET, TPS_TRY_GET, TPS_PUT, TPS_TRANSFORM };
tps_request_pipe *tps_request_pipe_new(int fd);
void tps_request_pipe_close(tps_request_pipe *s);
void tps_request_read(uint64_t request, int *kind, tps_str *key, tps_str *value, int *timeout_ms);
void tps_request_reply(uint64_t request, int code, const char *p, size_t n);

// The profiler extension. The code of a fault is 0 for success. Its text is malloced; it is NULL, with
// code 12, if the plugin has no profiler. The result of tps_profiler_stop belongs to the profiler.
typedef struct { int code; char *text; size_t n; } tps_fault;
tps_fault tps_profiler_start(const tps_Api *api, const char *options, size_t n, void **profiler);
tps_fault tps_profiler_stop(const tps_Api *api, void *profiler, tps_list *data);
void tps_profiler_destroy(const tps_Api *api, void *profiler);

// The extension for transforms. tps_transform_register returns the number of the transform for
// tps_transform_clear, or TPS_TRANSFORM_MISSING if the plugin does not have this version of the
// extension, TPS_TRANSFORM_FULL if the limit is reached, or TPS_TRANSFORM_FAILED and the plugin's *error.
enum { TPS_TRANSFORM_MISSING = -1, TPS_TRANSFORM_FULL = -2, TPS_TRANSFORM_FAILED = -3 };
int tps_transform_register(const tps_Api *api, const char *name, size_t n, int stage, tps_request_pipe *requests, void **error);
void *tps_transform_clear(const tps_Api *api, const char *name, size_t n, int stage, int transform);

void *tps_client_create(const tps_Api *api, const tps_NamedValue *opts, size_t n, tps_request_pipe *requests, void **client);
void *tps_client_destroy(const tps_Api *api, void *client);
void *tps_client_platform_name(const tps_Api *api, void *client, tps_str *out);
void *tps_client_platform_version(const tps_Api *api, void *client, tps_str *out);
void *tps_client_process_index(const tps_Api *api, void *client, int *out);
void *tps_client_topology(const tps_Api *api, void *client, void **out);
void *tps_client_devices(const tps_Api *api, void *client, tps_list *out);
void *tps_client_addressable_devices(const tps_Api *api, void *client, tps_list *out);
void *tps_client_addressable_memories(const tps_Api *api, void *client, tps_list *out);
void *tps_client_compile(const tps_Api *api, void *client, const char *code, size_t code_n, const char *format, size_t format_n, const char *opts, size_t opts_n, void **out);
void *tps_client_deserialize(const tps_Api *api, void *client, const char *p, size_t n, const char *opts, size_t opts_n, void **out);
void *tps_client_buffer(const tps_Api *api, void *client, const void *data, int type, const int64_t *dims, size_t rank, int semantics, void *device, void *memory, void **buffer, void **done);

void *tps_description_id(const tps_Api *api, void *d, int *out);
void *tps_description_process(const tps_Api *api, void *d, int *out);
void *tps_description_kind(const tps_Api *api, void *d, tps_str *out);
void *tps_description_debug(const tps_Api *api, void *d, tps_str *out);
void *tps_description_string(const tps_Api *api, void *d, tps_str *out);
void *tps_description_attributes(const tps_Api *api, void *d, tps_list *out);
void *tps_device_description(const tps_Api *api, void *d, void **out);
void *tps_device_addressable(const tps_Api *api, void *d, int *out);
void *tps_device_local_id(const tps_Api *api, void *d, int *out);
void *tps_device_memories(const tps_Api *api, void *d, tps_list *out);
void *tps_device_default_memory(const tps_Api *api, void *d, void **out);
void *tps_device_memory_stats(const tps_Api *api, void *d, int64_t out[11], uint32_t *set);
void *tps_memory_id(const tps_Api *api, void *m, int *out);
void *tps_memory_kind(const tps_Api *api, void *m, tps_str *out);
void *tps_memory_kind_id(const tps_Api *api, void *m, int *out);
void *tps_memory_debug(const tps_Api *api, void *m, tps_str *out);
void *tps_memory_string(const tps_Api *api, void *m, tps_str *out);
void *tps_memory_devices(const tps_Api *api, void *m, tps_list *out);

void *tps_executable_destroy(const tps_Api *api, void *x);
void *tps_executable_name(const tps_Api *api, void *x, tps_str *out);
void *tps_executable_fingerprint(const tps_Api *api, void *x, tps_str *out);
void *tps_executable_counts(const tps_Api *api, void *x, size_t *replicas, size_t *partitions, size_t *outputs);
void *tps_executable_code_size(const tps_Api *api, void *x, int64_t *out);
void *tps_executable_cost(const tps_Api *api, void *x, tps_list *out);
void *tps_executable_memory_stats(const tps_Api *api, void *x, int64_t out[15]);
void *tps_executable_output_types(const tps_Api *api, void *x, tps_list *out);
void *tps_executable_output_dims(const tps_Api *api, void *x, const int64_t **dims, tps_list *ranks);
void *tps_executable_output_kinds(const tps_Api *api, void *x, const char *const **kinds, tps_list *sizes);
void *tps_executable_parameter_kinds(const tps_Api *api, void *x, const char *const **kinds, tps_list *sizes);
void *tps_executable_program(const tps_Api *api, void *x, char *code, size_t *code_n, tps_str *format);
void *tps_executable_serialize(const tps_Api *api, void *x, tps_blob *out);

void *tps_loaded_destroy(const tps_Api *api, void *x);
void *tps_loaded_executable(const tps_Api *api, void *x, void **out);
void *tps_loaded_devices(const tps_Api *api, void *x, tps_list *out);
void *tps_loaded_assignment(const tps_Api *api, void *x, tps_blob *out);

// The arrays of one launch, in one block of memory: handles of arguments and results (device-major),
// the lists of pointers to them, the numbers of parameters that are not donated, and the handles that
// the launch donates.
//
// Destroying a donated buffer may block until the run that uses it ends. A ring therefore keeps the
// handles of the last TPS_LAUNCH_DEPTH launches, which use no device memory any more. A launch waits
// at most for the launch TPS_LAUNCH_DEPTH before it. A launch without donation keeps the completion
// events of its run instead, because a plugin deadlocks if more launches run than fit into its queues.
//
// A launch with TPS_LAUNCH_WIDE or more parameters keeps both, and destroys the handles of a device
// when the run has ended there. Otherwise the handles and their memory would no longer be in the caches.
enum { TPS_LAUNCH_DEPTH = 8, TPS_LAUNCH_WIDE = 32 };
typedef struct {
  const tps_Api *api;
  tps_LoadedExecutable_Execute_Args call;
  tps_ExecuteOptions options;
  size_t devices;
  size_t parameters;
  void **args;
  void **outs;
  void **drop;
  void **ring;
  void **events;
  void **ring_events;
  void ***arg_lists;
  void ***out_lists;
  int64_t *keep;
  void *error;
  size_t width;
  size_t next, reaped; // number of launches whose handles were kept, and of those that were destroyed
  size_t kept[TPS_LAUNCH_DEPTH];
  size_t awaited[TPS_LAUNCH_DEPTH]; // 1 + number of devices on which it may still run; 0 without events
} tps_launch;
tps_launch *tps_launch_new(const tps_Api *api, void *executable, size_t devices, size_t args, size_t outs);
// Waits for the runs whose donated handles are kept.
void tps_launch_free(tps_launch *l);
// The error is stored in the launch, because returning it would be slower. The launch is passed as an
// integer, because cgo checks all pointers.
void tps_execute(uintptr_t launch, size_t keep, size_t drop, int launch_id);
// Donates all arguments. On success, args contains the results.
void tps_execute_in_place(uintptr_t launch);

void *tps_buffer_destroy(const tps_Api *api, void *b);
void *tps_buffer_is_deleted(const tps_Api *api, void *b, int *out);
void *tps_buffer_type(const tps_Api *api, void *b, int *out);
void *tps_buffer_dims(const tps_Api *api, void *b, tps_list *out);
void *tps_buffer_size(const tps_Api *api, void *b, size_t *out);
void *tps_buffer_memory(const tps_Api *api, void *b, void **out);
void *tps_buffer_to_device(const tps_Api *api, void *b, void *device, void **out);
void *tps_buffer_to_memory(const tps_Api *api, void *b, void *memory, void **out);
// If the contents are available, *event is NULL and the result is the error of the work. Otherwise
// *event is the event to wait for, which the caller must destroy.
void *tps_buffer_poll(const tps_Api *api, void *b, void **event);
// Waits for an event and destroys it.
void *tps_event_finish(const tps_Api *api, void *event);
// Copies to dst in row-major order and waits for the copy.
void *tps_buffer_to_host(const tps_Api *api, void *b, size_t rank, void *dst, size_t n);

void *tps_topology_create(const tps_Api *api, const char *name, size_t name_n, const tps_NamedValue *opts, size_t n, void **out);
void *tps_topology_destroy(const tps_Api *api, void *t);
void *tps_topology_platform_name(const tps_Api *api, void *t, tps_str *out);
void *tps_topology_platform_version(const tps_Api *api, void *t, tps_str *out);
void *tps_topology_descriptions(const tps_Api *api, void *t, tps_list *out);
void *tps_topology_attributes(const tps_Api *api, void *t, tps_list *out);
void *tps_topology_serialize(const tps_Api *api, void *t, tps_blob *out);
void *tps_topology_deserialize(const tps_Api *api, const char *p, size_t n, void **out);
void *tps_topology_fingerprint(const tps_Api *api, void *t, uint64_t *out);
void *tps_compile(const tps_Api *api, void *topology, const char *code, size_t code_n, const char *format, size_t format_n, const char *opts, size_t opts_n, void **out);

// Runs n launches in which each result replaces the argument with the same number, and waits for the
// last. The numbers of arguments and results must be equal. *launched is the time of the first launch,
// and *ns the time of the loop.
void *tps_floor(tps_launch *l, size_t n, int64_t *launched, int64_t *ns);

void tps_blob_drop(tps_blob *b);

#endif
