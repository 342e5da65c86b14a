#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "call.h"

// Loading.

static char *dl_message(void) {
  const char *m = dlerror();
  return strdup(m ? m : "unknown error");
}

void *tps_open(const char *path, char **err) {
  *err = NULL;
  dlerror();
  void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!lib) *err = dl_message();
  return lib;
}

void *tps_api_of(void *lib, char **err) {
  *err = NULL;
  dlerror();
  void *(*get)(void) = (void *(*)(void))dlsym(lib, "GetPjrtApi");
  if (!get) {
    *err = dl_message();
    return NULL;
  }
  return get();
}

static const struct { const char *name; int minor; const char *reason; } slots[] = {
#define TPS_BOUND(name, minor) {#name, minor, NULL},
#define TPS_UNBOUND(name, minor, reason) {#name, minor, reason},
#include "slots.h"
#undef TPS_BOUND
#undef TPS_UNBOUND
};

const char *tps_slot_name(int s) { return slots[s].name; }
int tps_slot_minor(int s) { return slots[s].minor; }
int tps_slot_bound(int s) { return slots[s].reason == NULL; }
const char *tps_slot_reason(int s) { return slots[s].reason; }

// Errors.

int tps_error_code(const tps_Api *api, void *err) {
  ARGS(Error_GetCode, code, .error = err);
  void *e = CALL(Error_GetCode);
  if (e) {
    if (!((uintptr_t)e & 1)) tps_error_destroy(api, e);
    return 2;  // unknown
  }
  return a.code;
}

tps_str tps_error_text(const tps_Api *api, void *err) {
  ARGS(Error_Message, message_size, .error = err);
  void (*f)(void *) = (void (*)(void *))(uintptr_t)tps_find(api, TPS_SLOT_Error_Message);
  if (f) f(&a);
  return (tps_str){a.message, a.message_size};
}

void tps_error_destroy(const tps_Api *api, void *err) {
  ARGS(Error_Destroy, error, .error = err);
  void (*f)(void *) = (void (*)(void *))(uintptr_t)tps_find(api, TPS_SLOT_Error_Destroy);
  if (f) f(&a);
}

size_t tps_extensions(const tps_Api *api, int *types, size_t cap) {
  size_t n = 0;
  for (const tps_Extension_Base *x = api->extension_start; x && n < cap; x = x->next) types[n++] = x->type;
  return n;
}

// Plugin.

void *tps_plugin_initialize(const tps_Api *api) {
  ARGS(Plugin_Initialize, extension_start);
  return CALL(Plugin_Initialize);
}

void *tps_plugin_attributes(const tps_Api *api, tps_list *out) {
  ARGS(Plugin_Attributes, num_attributes);
  void *e = CALL(Plugin_Attributes);
  *out = e ? (tps_list){0} : (tps_list){a.attributes, a.num_attributes};
  return e;
}

// Client.

DESTROY(tps_client_destroy, Client_Destroy, client)
GET_STR(tps_client_platform_name, Client_PlatformName, client, platform_name)
GET_STR(tps_client_platform_version, Client_PlatformVersion, client, platform_version)
GET(tps_client_process_index, Client_ProcessIndex, client, process_index, int)
GET(tps_client_topology, Client_TopologyDescription, client, topology, void *)
GET_LIST(tps_client_devices, Client_Devices, client, devices, num_devices, num_devices)
GET_LIST(tps_client_addressable_devices, Client_AddressableDevices, client, addressable_devices, num_addressable_devices, num_addressable_devices)
GET_LIST(tps_client_addressable_memories, Client_AddressableMemories, client, addressable_memories, num_addressable_memories, num_addressable_memories)

static tps_Program program_of(const char *code, size_t code_n, const char *format, size_t format_n) {
  return (tps_Program){.struct_size = TPS_SIZE(tps_Program, format_size), .code = (char *)code,
                       .code_size = code_n, .format = format, .format_size = format_n};
}

void *tps_client_compile(const tps_Api *api, void *client, const char *code, size_t code_n, const char *format, size_t format_n, const char *opts, size_t opts_n, void **out) {
  tps_Program p = program_of(code, code_n, format, format_n);
  ARGS(Client_Compile, executable, .client = client, .program = &p, .compile_options = opts, .compile_options_size = opts_n);
  void *e = CALL(Client_Compile);
  *out = e ? NULL : a.executable;
  return e;
}

void *tps_client_deserialize(const tps_Api *api, void *client, const char *p, size_t n, const char *opts, size_t opts_n, void **out) {
  ARGS(Executable_DeserializeAndLoad, overridden_serialized_compile_options_size, .client = client,
       .serialized_executable = p, .serialized_executable_size = n,
       .overridden_serialized_compile_options = opts_n ? opts : NULL,
       .overridden_serialized_compile_options_size = opts_n);
  void *e = CALL(Executable_DeserializeAndLoad);
  *out = e ? NULL : a.loaded_executable;
  return e;
}

// Devices and memories.

GET(tps_description_id, DeviceDescription_Id, device_description, id, int)
GET(tps_description_process, DeviceDescription_ProcessIndex, device_description, process_index, int)
GET_STR(tps_description_kind, DeviceDescription_Kind, device_description, device_kind)
GET_STR(tps_description_debug, DeviceDescription_DebugString, device_description, debug_string)
GET_STR(tps_description_string, DeviceDescription_ToString, device_description, to_string)
GET_LIST(tps_description_attributes, DeviceDescription_Attributes, device_description, attributes, num_attributes, attributes)
GET(tps_device_description, Device_GetDescription, device, device_description, void *)
GET(tps_device_addressable, Device_IsAddressable, device, is_addressable, int)
GET(tps_device_local_id, Device_LocalHardwareId, device, local_hardware_id, int)
GET_LIST(tps_device_memories, Device_AddressableMemories, device, memories, num_memories, num_memories)
GET(tps_device_default_memory, Device_DefaultMemory, device, memory, void *)

void *tps_device_memory_stats(const tps_Api *api, void *d, int64_t out[11], uint32_t *set) {
  ARGS(Device_MemoryStats, peak_pool_bytes_is_set, .device = d);
  void *e = CALL(Device_MemoryStats);
  const int64_t values[11] = {a.bytes_in_use, a.peak_bytes_in_use, a.num_allocs, a.largest_alloc_size, a.bytes_limit, a.bytes_reserved,
                              a.peak_bytes_reserved, a.bytes_reservable_limit, a.largest_free_block_bytes, a.pool_bytes, a.peak_pool_bytes};
  const bool is_set[11] = {true, a.peak_bytes_in_use_is_set, a.num_allocs_is_set, a.largest_alloc_size_is_set, a.bytes_limit_is_set, a.bytes_reserved_is_set,
                           a.peak_bytes_reserved_is_set, a.bytes_reservable_limit_is_set, a.largest_free_block_bytes_is_set, a.pool_bytes_is_set, a.peak_pool_bytes_is_set};
  *set = 0;
  for (int i = 0; i < 11; i++) {
    out[i] = values[i];
    if (is_set[i]) *set |= 1u << i;
  }
  return e;
}

GET(tps_memory_id, Memory_Id, memory, id, int)
GET_STR(tps_memory_kind, Memory_Kind, memory, kind)
GET(tps_memory_kind_id, Memory_Kind_Id, memory, kind_id, int)
GET_STR(tps_memory_debug, Memory_DebugString, memory, debug_string)
GET_STR(tps_memory_string, Memory_ToString, memory, to_string)
GET_LIST(tps_memory_devices, Memory_AddressableByDevices, memory, devices, num_devices, num_devices)

// Topologies.

void *tps_topology_create(const tps_Api *api, const char *name, size_t name_n, const tps_NamedValue *opts, size_t n, void **out) {
  ARGS(TopologyDescription_Create, topology, .topology_name = name, .topology_name_size = name_n, .create_options = opts, .num_options = n);
  void *e = CALL(TopologyDescription_Create);
  *out = e ? NULL : a.topology;
  return e;
}

DESTROY(tps_topology_destroy, TopologyDescription_Destroy, topology)
GET_STR(tps_topology_platform_name, TopologyDescription_PlatformName, topology, platform_name)
GET_STR(tps_topology_platform_version, TopologyDescription_PlatformVersion, topology, platform_version)
GET_LIST(tps_topology_descriptions, TopologyDescription_GetDeviceDescriptions, topology, descriptions, num_descriptions, num_descriptions)
GET_LIST(tps_topology_attributes, TopologyDescription_Attributes, topology, attributes, num_attributes, num_attributes)
GET_BLOB(tps_topology_serialize, TopologyDescription_Serialize, topology, serialized_topology)
GET(tps_topology_fingerprint, TopologyDescription_Fingerprint, topology, fingerprint, uint64_t)

void *tps_topology_deserialize(const tps_Api *api, const char *p, size_t n, void **out) {
  ARGS(TopologyDescription_Deserialize, topology, .serialized_topology = p, .serialized_topology_size = n);
  void *e = CALL(TopologyDescription_Deserialize);
  *out = e ? NULL : a.topology;
  return e;
}

void *tps_compile(const tps_Api *api, void *topology, const char *code, size_t code_n, const char *format, size_t format_n, const char *opts, size_t opts_n, void **out) {
  tps_Program p = program_of(code, code_n, format, format_n);
  ARGS(Compile, executable, .topology = topology, .program = &p, .compile_options = opts, .compile_options_size = opts_n);
  void *e = CALL(Compile);
  *out = e ? NULL : a.executable;
  return e;
}

void tps_blob_drop(tps_blob *b) {
  if (b->owner && b->drop) b->drop(b->owner);
  b->owner = NULL;
}

// Executables.

DESTROY(tps_executable_destroy, Executable_Destroy, executable)
GET_STR(tps_executable_name, Executable_Name, executable, executable_name)
GET_STR(tps_executable_fingerprint, Executable_Fingerprint, executable, executable_fingerprint)
GET(tps_executable_code_size, Executable_SizeOfGeneratedCodeInBytes, executable, size_in_bytes, int64_t)
GET_LIST(tps_executable_cost, Executable_GetCostAnalysis, executable, properties, num_properties, properties)
GET_LIST(tps_executable_output_types, Executable_OutputElementTypes, executable, output_types, num_output_types, num_output_types)
GET_BLOB(tps_executable_serialize, Executable_Serialize, executable, serialized_executable)

static GET(replicas_of, Executable_NumReplicas, executable, num_replicas, size_t)
static GET(partitions_of, Executable_NumPartitions, executable, num_partitions, size_t)
static GET(outputs_of, Executable_NumOutputs, executable, num_outputs, size_t)

void *tps_executable_counts(const tps_Api *api, void *x, size_t *replicas, size_t *partitions, size_t *outputs) {
  void *e = replicas_of(api, x, replicas);
  if (!e) e = partitions_of(api, x, partitions);
  if (!e) e = outputs_of(api, x, outputs);
  return e;
}

void *tps_executable_memory_stats(const tps_Api *api, void *x, int64_t out[15]) {
  ARGS(Executable_GetCompiledMemoryStats, peak_unpadded_heap_bytes, .executable = x);
  void *e = CALL(Executable_GetCompiledMemoryStats);
  memcpy(out, &a.generated_code_size_in_bytes, 15 * sizeof(int64_t));
  return e;
}

void *tps_executable_output_dims(const tps_Api *api, void *x, const int64_t **dims, tps_list *ranks) {
  ARGS(Executable_OutputDimensions, dim_sizes, .executable = x);
  void *e = CALL(Executable_OutputDimensions);
  *dims = e ? NULL : a.dims;
  *ranks = e ? (tps_list){0} : (tps_list){a.dim_sizes, a.num_outputs};
  return e;
}

void *tps_executable_output_kinds(const tps_Api *api, void *x, const char *const **kinds, tps_list *sizes) {
  ARGS(Executable_OutputMemoryKinds, memory_kind_sizes, .executable = x);
  void *e = CALL(Executable_OutputMemoryKinds);
  *kinds = e ? NULL : a.memory_kinds;
  *sizes = e ? (tps_list){0} : (tps_list){a.memory_kind_sizes, a.num_outputs};
  return e;
}

void *tps_executable_parameter_kinds(const tps_Api *api, void *x, const char *const **kinds, tps_list *sizes) {
  ARGS(Executable_ParameterMemoryKinds, memory_kind_sizes, .executable = x);
  void *e = CALL(Executable_ParameterMemoryKinds);
  *kinds = e ? NULL : a.memory_kinds;
  *sizes = e ? (tps_list){0} : (tps_list){a.memory_kind_sizes, a.num_parameters};
  return e;
}

// If code is NULL, returns the required size in *code_n. Otherwise copies the program to code.
void *tps_executable_program(const tps_Api *api, void *x, char *code, size_t *code_n, tps_str *format) {
  tps_Program p = program_of(code, code ? *code_n : 0, NULL, 0);
  ARGS(Executable_OptimizedProgram, program, .executable = x, .program = &p);
  void *e = CALL(Executable_OptimizedProgram);
  *code_n = e ? 0 : p.code_size;
  *format = e ? (tps_str){0} : (tps_str){p.format, p.format_size};
  return e;
}

// Loaded executables.

DESTROY(tps_loaded_destroy, LoadedExecutable_Destroy, executable)
GET(tps_loaded_executable, LoadedExecutable_GetExecutable, loaded_executable, executable, void *)
GET_LIST(tps_loaded_devices, LoadedExecutable_AddressableDevices, executable, addressable_devices, num_addressable_devices, num_addressable_devices)
GET_BLOB(tps_loaded_assignment, LoadedExecutable_GetDeviceAssignment, executable, serialized_device_assignment)
