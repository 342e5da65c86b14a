// Shims for buffers, events and launches, which are called in each step.

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "call.h"

// Events.

static GET(event_ready, Event_IsReady, event, is_ready, int)

static void *event_await(const tps_Api *api, void *event) {
  ARGS(Event_Await, event, .event = event);
  return CALL(Event_Await);
}

void tps_event_destroy(const tps_Api *api, void *event) {
  if (!event) return;
  ARGS(Event_Destroy, event, .event = event);
  tps_discard(api, CALL(Event_Destroy));
}

typedef struct { int fd; uint64_t slot; } note;

// Runs on the thread that completes the work, possibly during another call of this package. It must
// therefore not call Go. It writes the number of the wait and the error to a pipe.
static void on_ready(void *error, void *arg) {
  note *n = arg;
  uint64_t message[2] = {n->slot, (uint64_t)(uintptr_t)error};
  const char *p = (const char *)message;
  size_t left = sizeof(message);
  while (left) {
    ssize_t w = write(n->fd, p, left);
    if (w > 0) {
      p += w;
      left -= (size_t)w;
    } else if (w < 0 && errno == EAGAIN) {
      struct pollfd f = {.fd = n->fd, .events = POLLOUT};
      poll(&f, 1, -1);
    } else if (w < 0 && errno != EINTR) {
      break;  // the pipe is closed
    }
  }
  free(n);
}

void *tps_event_notify(const tps_Api *api, void *event, int fd, uint64_t slot) {
  note *n = malloc(sizeof(note));
  *n = (note){fd, slot};
  ARGS(Event_OnReady, user_arg, .event = event, .callback = on_ready, .user_arg = n);
  void *e = CALL(Event_OnReady);
  if (e) free(n);
  return e;
}

// Buffers.

void *tps_client_buffer(const tps_Api *api, void *client, const void *data, int type, const int64_t *dims, size_t rank, int semantics, void *device, void *memory, void **buffer, void **done) {
  ARGS(Client_BufferFromHostBuffer, buffer, .client = client, .data = data, .type = type, .dims = dims, .num_dims = rank,
       .host_buffer_semantics = semantics, .device = device, .memory = memory);
  void *e = CALL(Client_BufferFromHostBuffer);
  *buffer = e ? NULL : a.buffer;
  if (done) {
    *done = e ? NULL : a.done_with_host_buffer;
  } else if (!e) {
    tps_event_destroy(api, a.done_with_host_buffer);
  }
  return e;
}

void *tps_buffer_destroy(const tps_Api *api, void *b) {
  ARGS(Buffer_Destroy, buffer, .buffer = b);
  return CALL(Buffer_Destroy);
}

GET(tps_buffer_is_deleted, Buffer_IsDeleted, buffer, is_deleted, int)
GET(tps_buffer_type, Buffer_ElementType, buffer, type, int)
GET(tps_buffer_size, Buffer_OnDeviceSizeInBytes, buffer, on_device_size_in_bytes, size_t)
GET(tps_buffer_memory, Buffer_Memory, buffer, memory, void *)
static GET(ready_event, Buffer_ReadyEvent, buffer, event, void *)

void *tps_buffer_dims(const tps_Api *api, void *b, tps_list *out) {
  ARGS(Buffer_Dimensions, num_dims, .buffer = b);
  void *e = CALL(Buffer_Dimensions);
  *out = e ? (tps_list){0} : (tps_list){a.dims, a.num_dims};
  return e;
}

void *tps_buffer_to_device(const tps_Api *api, void *b, void *device, void **out) {
  ARGS(Buffer_CopyToDevice, dst_buffer, .buffer = b, .dst_device = device);
  void *e = CALL(Buffer_CopyToDevice);
  *out = e ? NULL : a.dst_buffer;
  return e;
}

void *tps_buffer_to_memory(const tps_Api *api, void *b, void *memory, void **out) {
  ARGS(Buffer_CopyToMemory, dst_buffer, .buffer = b, .dst_memory = memory);
  void *e = CALL(Buffer_CopyToMemory);
  *out = e ? NULL : a.dst_buffer;
  return e;
}

void *tps_buffer_poll(const tps_Api *api, void *b, void **event) {
  int ready = 0;
  void *e = ready_event(api, b, event);
  if (e) {
    *event = NULL;
    return e;
  }
  e = event_ready(api, *event, &ready);
  if (!e && !ready) return NULL;
  if (!e) e = event_await(api, *event);
  tps_event_destroy(api, *event);
  *event = NULL;
  return e;
}

void *tps_event_finish(const tps_Api *api, void *event) {
  void *e = event_await(api, event);
  tps_event_destroy(api, event);
  return e;
}

enum { max_rank = 64 };

// The layout is necessary because the default is the layout of the device, which on a TPU is often not
// row-major.
void *tps_buffer_to_host(const tps_Api *api, void *b, size_t rank, void *dst, size_t n) {
  int64_t order[max_rank];
  for (size_t i = 0; i < rank; i++) order[i] = (int64_t)(rank - 1 - i);
  tps_Buffer_MemoryLayout layout = {.struct_size = TPS_SIZE(tps_Buffer_MemoryLayout, type), .type = 0};
  layout.tiled = (tps_Buffer_MemoryLayout_Tiled){.struct_size = TPS_SIZE(tps_Buffer_MemoryLayout_Tiled, num_tiles),
                                                 .minor_to_major = order, .minor_to_major_size = rank};
  ARGS(Buffer_ToHostBuffer, event, .src = b, .host_layout = &layout, .dst = dst, .dst_size = n);
  void *e = CALL(Buffer_ToHostBuffer);
  if (e || !a.event) return e;
  return tps_event_finish(api, a.event);
}

// Launches.

tps_launch *tps_launch_new(const tps_Api *api, void *executable, size_t devices, size_t args, size_t outs) {
  size_t flat_args = devices * args, flat_outs = devices * outs;
  size_t words = (2 + TPS_LAUNCH_DEPTH) * flat_args + flat_outs + (3 + TPS_LAUNCH_DEPTH) * devices + args;
  tps_launch *l = calloc(1, sizeof(tps_launch) + words * sizeof(void *));
  if (!l) return NULL;
  l->api = api, l->devices = devices, l->parameters = args;
  void **p = (void **)(l + 1);
  l->args = p, p += flat_args;
  l->drop = p, p += flat_args;
  l->ring = p, p += TPS_LAUNCH_DEPTH * flat_args;
  l->width = flat_args;
  l->outs = p, p += flat_outs;
  l->events = p, p += devices;
  l->ring_events = p, p += TPS_LAUNCH_DEPTH * devices;
  l->arg_lists = (void ***)p, p += devices;
  l->out_lists = (void ***)p, p += devices;
  l->keep = (int64_t *)p;
  l->options = (tps_ExecuteOptions){.struct_size = TPS_SIZE(tps_ExecuteOptions, multi_slice_config), .non_donatable_input_indices = l->keep};
  l->call = (tps_LoadedExecutable_Execute_Args){
      .struct_size = TPS_SIZE(tps_LoadedExecutable_Execute_Args, execute_device), .executable = executable, .options = &l->options,
      .argument_lists = (void *const *const *)l->arg_lists, .num_devices = devices, .num_args = args, .output_lists = (void **const *)l->out_lists};
  for (size_t d = 0; d < devices; d++) {
    l->arg_lists[d] = l->args + d * args;
    l->out_lists[d] = l->outs + d * outs;
  }
  return l;
}

// Waits until a launch has ended on one device, and destroys the handles that it donated there. Errors
// of the run are reported by its results.
static void launch_reap_device(tps_launch *l, size_t slot, size_t d) {
  size_t n = l->kept[slot] / l->devices;
  void **ring = l->ring + slot * l->width + d * n, **event = l->ring_events + slot * l->devices + d;
  for (size_t i = 0; i < n; i++) tps_discard(l->api, tps_buffer_destroy(l->api, ring[i]));
  if (*event) tps_discard(l->api, tps_event_finish(l->api, *event));
  *event = NULL;
}

// Calls launch_reap_device for the remaining devices of the oldest launch.
static void launch_reap(tps_launch *l) {
  size_t slot = l->reaped++ % TPS_LAUNCH_DEPTH;
  for (size_t d = 0; d < l->devices; d++) {
    if (!l->awaited[slot] || l->ring_events[slot * l->devices + d]) launch_reap_device(l, slot, d);
  }
  l->kept[slot] = l->awaited[slot] = 0;
}

// Calls launch_reap_device for all runs whose events are ready.
static void launch_reap_ended(tps_launch *l) {
  for (size_t d = 0; d < l->devices; d++) {
    for (size_t k = l->reaped; k < l->next; k++) { // a device runs launches in this order
      size_t slot = k % TPS_LAUNCH_DEPTH;
      void *event = l->ring_events[slot * l->devices + d];
      if (!l->awaited[slot]) break;
      if (!event) continue;
      int ready = 0;
      void *e = event_ready(l->api, event, &ready);
      if (e) tps_discard(l->api, e);
      if (e || !ready) break;
      launch_reap_device(l, slot, d);
      l->awaited[slot]--;
    }
  }
  while (l->reaped < l->next && l->awaited[l->reaped % TPS_LAUNCH_DEPTH] == 1) launch_reap(l);
}

void tps_launch_free(tps_launch *l) {
  for (; l->reaped < l->next; launch_reap(l)) {
    size_t slot = l->reaped % TPS_LAUNCH_DEPTH;
    for (size_t d = 0; d < l->devices && !l->kept[slot]; d++) { // no donated handles, so no wait is necessary
      void **event = l->ring_events + slot * l->devices + d;
      if (*event) tps_event_destroy(l->api, *event);
      *event = NULL;
    }
  }
  free(l);
}

// Requests completion events if the launch donates nothing, or if it has so many handles that they
// should be destroyed early.
static void launch_events(tps_launch *l, size_t donated) {
  l->call.device_complete_events = donated && l->parameters < TPS_LAUNCH_WIDE ? NULL : l->events;
}

static void *launch(tps_launch *l, size_t keep, int launch_id) {
  l->options.launch_id = launch_id;
  l->options.num_non_donatable_input_indices = keep;
  return tps_call(l->api, TPS_SLOT_LoadedExecutable_Execute, &l->call);
}

// Keeps the donated handles and the events of a launch.
static void launch_keep(tps_launch *l, void **donated, size_t n) {
  if (l->next - l->reaped == TPS_LAUNCH_DEPTH) launch_reap(l);
  size_t slot = l->next++ % TPS_LAUNCH_DEPTH;
  memcpy(l->ring + slot * l->width, donated, n * sizeof(void *));
  l->kept[slot] = n;
  if (!l->call.device_complete_events) return;
  memcpy(l->ring_events + slot * l->devices, l->events, l->devices * sizeof(void *));
  l->awaited[slot] = 1 + l->devices;
  if (l->parameters >= TPS_LAUNCH_WIDE) launch_reap_ended(l);
}

void tps_execute(uintptr_t address, size_t keep, size_t drop, int launch_id) {
  tps_launch *l = (tps_launch *)address;
  launch_events(l, drop);
  l->error = launch(l, keep, launch_id);
  if (!l->error) launch_keep(l, l->drop, drop);
}

void tps_execute_in_place(uintptr_t address) {
  tps_launch *l = (tps_launch *)address;
  launch_events(l, l->width);
  l->error = launch(l, 0, 0);
  if (l->error) return;
  launch_keep(l, l->args, l->width);
  memcpy(l->args, l->outs, l->width * sizeof(void *));
}

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void *tps_floor(tps_launch *l, size_t n, int64_t *launched, int64_t *ns) {
  const tps_Api *api = l->api;
  size_t flat = l->devices * l->parameters;
  int64_t start = now_ns();
  l->call.device_complete_events = NULL;
  for (size_t i = 0; i < n; i++) {
    void *e = launch(l, 0, 0);
    if (e) return e;
    if (i == 0) *launched = now_ns() - start;
    for (size_t k = 0; k < flat; k++) {
      tps_discard(api, tps_buffer_destroy(api, l->args[k]));
      l->args[k] = l->outs[k];
    }
  }
  for (size_t k = 0; k < flat; k++) {
    void *event = NULL;
    void *e = tps_buffer_poll(api, l->args[k], &event);
    if (event) e = tps_event_finish(api, event);
    if (e) return e;
  }
  *ns = now_ns() - start;
  return NULL;
}
