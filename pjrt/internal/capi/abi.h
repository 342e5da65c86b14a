// The part of the PJRT C ABI that this package uses, declared from the published layout. Fields have
// the names of PJRT, so that a test can compare all offsets with official headers.
//
// The size field of a struct is the offset after its last declared field (TPS_SIZE), not sizeof,
// because trailing padding is not part of the ABI.
#ifndef TPUSTRATEGY_PJRT_CAPI_ABI_H_
#define TPUSTRATEGY_PJRT_CAPI_ABI_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TPS_SIZE(type, last) (offsetof(type, last) + sizeof(((type *)0)->last))

// Every argument struct starts with its size and a list of extensions.
#define TPS_HEAD        \
  size_t struct_size;   \
  void *extension_start;

typedef struct { size_t struct_size; int type; void *next; } tps_Extension_Base;
typedef struct { TPS_HEAD int major_version; int minor_version; } tps_Api_Version;

// The head of the function table; the slots of slots.h follow it.
typedef struct { TPS_HEAD tps_Api_Version pjrt_api_version; } tps_Api;

// Errors and events.
typedef struct { TPS_HEAD void *error; } tps_Error_Destroy_Args;
typedef struct { TPS_HEAD const void *error; const char *message; size_t message_size; } tps_Error_Message_Args;
typedef struct { TPS_HEAD const void *error; int code; } tps_Error_GetCode_Args;
typedef struct { TPS_HEAD void *event; } tps_Event_Destroy_Args;
typedef struct { TPS_HEAD void *event; bool is_ready; } tps_Event_IsReady_Args;
typedef struct { TPS_HEAD void *event; } tps_Event_Await_Args;
typedef struct { TPS_HEAD void *event; void (*callback)(void *error, void *user_arg); void *user_arg; } tps_Event_OnReady_Args;

// Options and attributes. type: 0 string, 1 int64, 2 int64 list, 3 float, 4 bool.
typedef struct {
  TPS_HEAD
  const char *name;
  size_t name_size;
  int type;
  union {
    const char *string_value;
    int64_t int64_value;
    const int64_t *int64_array_value;
    float float_value;
    bool bool_value;
  };
  size_t value_size;
} tps_NamedValue;

// Plugin.
typedef struct { TPS_HEAD } tps_Plugin_Initialize_Args;
typedef struct { TPS_HEAD const tps_NamedValue *attributes; size_t num_attributes; } tps_Plugin_Attributes_Args;

// Client.
typedef struct {
  TPS_HEAD
  const tps_NamedValue *create_options;
  size_t num_options;
  void *kv_get_callback;
  void *kv_get_user_arg;
  void *kv_put_callback;
  void *kv_put_user_arg;
  void *client;
  void *kv_try_get_callback;
  void *kv_try_get_user_arg;
} tps_Client_Create_Args;
// The key-value callbacks of a client. callback_error points to a function that creates an error.
typedef struct {
  TPS_HEAD
  const char *key;
  size_t key_size;
  int timeout_in_ms;
  void *callback_error;
  void *user_arg;
  char *value;
  size_t value_size;
  void (*value_deleter_callback)(char *value);
} tps_KeyValueGetCallback_Args;
typedef struct {
  TPS_HEAD
  const char *key;
  size_t key_size;
  void *callback_error;
  void *user_arg;
  char *value;
  size_t value_size;
  void (*value_deleter_callback)(char *value);
} tps_KeyValueTryGetCallback_Args;
typedef struct {
  TPS_HEAD
  const char *key;
  size_t key_size;
  const char *value;
  size_t value_size;
  void *callback_error;
  void *user_arg;
} tps_KeyValuePutCallback_Args;
typedef struct { TPS_HEAD void *client; } tps_Client_Destroy_Args;
typedef struct { TPS_HEAD void *client; const char *platform_name; size_t platform_name_size; } tps_Client_PlatformName_Args;
typedef struct { TPS_HEAD void *client; int process_index; } tps_Client_ProcessIndex_Args;
typedef struct { TPS_HEAD void *client; const char *platform_version; size_t platform_version_size; } tps_Client_PlatformVersion_Args;
typedef struct { TPS_HEAD void *client; void *topology; } tps_Client_TopologyDescription_Args;
typedef struct { TPS_HEAD void *client; void *const *devices; size_t num_devices; } tps_Client_Devices_Args;
typedef struct { TPS_HEAD void *client; void *const *addressable_devices; size_t num_addressable_devices; } tps_Client_AddressableDevices_Args;
typedef struct { TPS_HEAD void *client; void *const *addressable_memories; size_t num_addressable_memories; } tps_Client_AddressableMemories_Args;
typedef struct { TPS_HEAD char *code; size_t code_size; const char *format; size_t format_size; } tps_Program;
typedef struct { TPS_HEAD void *client; const tps_Program *program; const char *compile_options; size_t compile_options_size; void *executable; } tps_Client_Compile_Args;

// Layouts. type: 0 tiled, 1 strides.
typedef struct { TPS_HEAD const int64_t *minor_to_major; size_t minor_to_major_size; const int64_t *tile_dims; const size_t *tile_dim_sizes; size_t num_tiles; } tps_Buffer_MemoryLayout_Tiled;
typedef struct { TPS_HEAD const int64_t *byte_strides; size_t num_byte_strides; } tps_Buffer_MemoryLayout_Strides;
typedef struct {
  TPS_HEAD
  union {
    tps_Buffer_MemoryLayout_Tiled tiled;
    tps_Buffer_MemoryLayout_Strides strides;
  };
  int type;
} tps_Buffer_MemoryLayout;

// host_buffer_semantics: 0 immutable only during call, 1 until transfer
// completes, 2 immutable zero copy, 3 mutable zero copy.
typedef struct {
  TPS_HEAD
  void *client;
  const void *data;
  int type;
  const int64_t *dims;
  size_t num_dims;
  const int64_t *byte_strides;
  size_t num_byte_strides;
  int host_buffer_semantics;
  void *device;
  void *memory;
  tps_Buffer_MemoryLayout *device_layout;
  void *done_with_host_buffer;
  void *buffer;
} tps_Client_BufferFromHostBuffer_Args;

// Device descriptions and devices.
typedef struct { TPS_HEAD void *device_description; int id; } tps_DeviceDescription_Id_Args;
typedef struct { TPS_HEAD void *device_description; int process_index; } tps_DeviceDescription_ProcessIndex_Args;
typedef struct { TPS_HEAD void *device_description; size_t num_attributes; const tps_NamedValue *attributes; } tps_DeviceDescription_Attributes_Args;
typedef struct { TPS_HEAD void *device_description; const char *device_kind; size_t device_kind_size; } tps_DeviceDescription_Kind_Args;
typedef struct { TPS_HEAD void *device_description; const char *debug_string; size_t debug_string_size; } tps_DeviceDescription_DebugString_Args;
typedef struct { TPS_HEAD void *device_description; const char *to_string; size_t to_string_size; } tps_DeviceDescription_ToString_Args;
typedef struct { TPS_HEAD void *device; void *device_description; } tps_Device_GetDescription_Args;
typedef struct { TPS_HEAD void *device; bool is_addressable; } tps_Device_IsAddressable_Args;
typedef struct { TPS_HEAD void *device; int local_hardware_id; } tps_Device_LocalHardwareId_Args;
typedef struct { TPS_HEAD void *device; void *const *memories; size_t num_memories; } tps_Device_AddressableMemories_Args;
typedef struct { TPS_HEAD void *device; void *memory; } tps_Device_DefaultMemory_Args;
typedef struct {
  TPS_HEAD
  void *device;
  int64_t bytes_in_use;
  int64_t peak_bytes_in_use;
  bool peak_bytes_in_use_is_set;
  int64_t num_allocs;
  bool num_allocs_is_set;
  int64_t largest_alloc_size;
  bool largest_alloc_size_is_set;
  int64_t bytes_limit;
  bool bytes_limit_is_set;
  int64_t bytes_reserved;
  bool bytes_reserved_is_set;
  int64_t peak_bytes_reserved;
  bool peak_bytes_reserved_is_set;
  int64_t bytes_reservable_limit;
  bool bytes_reservable_limit_is_set;
  int64_t largest_free_block_bytes;
  bool largest_free_block_bytes_is_set;
  int64_t pool_bytes;
  bool pool_bytes_is_set;
  int64_t peak_pool_bytes;
  bool peak_pool_bytes_is_set;
} tps_Device_MemoryStats_Args;

// Memories.
typedef struct { TPS_HEAD void *memory; int id; } tps_Memory_Id_Args;
typedef struct { TPS_HEAD void *memory; const char *kind; size_t kind_size; } tps_Memory_Kind_Args;
typedef struct { TPS_HEAD void *memory; int kind_id; } tps_Memory_Kind_Id_Args;
typedef struct { TPS_HEAD void *memory; const char *debug_string; size_t debug_string_size; } tps_Memory_DebugString_Args;
typedef struct { TPS_HEAD void *memory; const char *to_string; size_t to_string_size; } tps_Memory_ToString_Args;
typedef struct { TPS_HEAD void *memory; void *const *devices; size_t num_devices; } tps_Memory_AddressableByDevices_Args;

// Executables, not loaded.
typedef struct { TPS_HEAD void *executable; } tps_Executable_Destroy_Args;
typedef struct { TPS_HEAD void *executable; const char *executable_name; size_t executable_name_size; } tps_Executable_Name_Args;
typedef struct { TPS_HEAD void *executable; size_t num_replicas; } tps_Executable_NumReplicas_Args;
typedef struct { TPS_HEAD void *executable; size_t num_partitions; } tps_Executable_NumPartitions_Args;
typedef struct { TPS_HEAD void *executable; size_t num_outputs; } tps_Executable_NumOutputs_Args;
typedef struct { TPS_HEAD void *executable; int64_t size_in_bytes; } tps_Executable_SizeOfGeneratedCodeInBytes_Args;
typedef struct { TPS_HEAD void *executable; const char *executable_fingerprint; size_t executable_fingerprint_size; } tps_Executable_Fingerprint_Args;
typedef struct { TPS_HEAD void *executable; size_t num_properties; const tps_NamedValue *properties; } tps_Executable_GetCostAnalysis_Args;
typedef struct {
  TPS_HEAD
  void *executable;
  int64_t generated_code_size_in_bytes;
  int64_t argument_size_in_bytes;
  int64_t output_size_in_bytes;
  int64_t alias_size_in_bytes;
  int64_t temp_size_in_bytes;
  int64_t host_generated_code_size_in_bytes;
  int64_t host_argument_size_in_bytes;
  int64_t host_output_size_in_bytes;
  int64_t host_alias_size_in_bytes;
  int64_t host_temp_size_in_bytes;
  int64_t peak_memory_in_bytes;
  int64_t total_size_in_bytes;
  int64_t total_allocation_bytes;
  int64_t indefinite_allocations;
  int64_t peak_unpadded_heap_bytes;
} tps_Executable_GetCompiledMemoryStats_Args;
typedef struct { TPS_HEAD void *executable; int *output_types; size_t num_output_types; } tps_Executable_OutputElementTypes_Args;
typedef struct { TPS_HEAD void *executable; size_t num_outputs; const int64_t *dims; const size_t *dim_sizes; } tps_Executable_OutputDimensions_Args;
typedef struct { TPS_HEAD void *executable; size_t num_outputs; const char *const *memory_kinds; const size_t *memory_kind_sizes; } tps_Executable_OutputMemoryKinds_Args;
typedef struct { TPS_HEAD void *executable; size_t num_parameters; const char *const *memory_kinds; const size_t *memory_kind_sizes; } tps_Executable_ParameterMemoryKinds_Args;
typedef struct { TPS_HEAD void *executable; tps_Program *program; } tps_Executable_OptimizedProgram_Args;
typedef struct { TPS_HEAD const void *executable; const char *serialized_bytes; size_t serialized_bytes_size; void *serialized_executable; void (*serialized_executable_deleter)(void *); } tps_Executable_Serialize_Args;
typedef struct { TPS_HEAD void *client; const char *serialized_executable; size_t serialized_executable_size; void *loaded_executable; const char *overridden_serialized_compile_options; size_t overridden_serialized_compile_options_size; } tps_Executable_DeserializeAndLoad_Args;

// Loaded executables.
typedef struct { TPS_HEAD void *executable; } tps_LoadedExecutable_Destroy_Args;
typedef struct { TPS_HEAD void *loaded_executable; void *executable; } tps_LoadedExecutable_GetExecutable_Args;
typedef struct { TPS_HEAD void *executable; void *const *addressable_devices; size_t num_addressable_devices; } tps_LoadedExecutable_AddressableDevices_Args;
typedef struct { TPS_HEAD void *executable; const char *serialized_bytes; size_t serialized_bytes_size; void *serialized_device_assignment; void (*serialized_device_assignment_deleter)(void *); } tps_LoadedExecutable_GetDeviceAssignment_Args;
typedef struct {
  TPS_HEAD
  void *send_callbacks;
  void *recv_callbacks;
  size_t num_send_ops;
  size_t num_recv_ops;
  int launch_id;
  const int64_t *non_donatable_input_indices;
  size_t num_non_donatable_input_indices;
  void *context;
  const char *call_location;
  size_t num_tasks;
  int *task_ids;
  int64_t *incarnation_ids;
  void *multi_slice_config;
} tps_ExecuteOptions;
typedef struct {
  TPS_HEAD
  void *executable;
  tps_ExecuteOptions *options;
  void *const *const *argument_lists;
  size_t num_devices;
  size_t num_args;
  void **const *output_lists;
  void **device_complete_events;
  void *execute_device;
} tps_LoadedExecutable_Execute_Args;

// Buffers.
typedef struct { TPS_HEAD void *buffer; } tps_Buffer_Destroy_Args;
typedef struct { TPS_HEAD void *buffer; bool is_deleted; } tps_Buffer_IsDeleted_Args;
typedef struct { TPS_HEAD void *buffer; int type; } tps_Buffer_ElementType_Args;
typedef struct { TPS_HEAD void *buffer; const int64_t *dims; size_t num_dims; } tps_Buffer_Dimensions_Args;
typedef struct { TPS_HEAD void *src; tps_Buffer_MemoryLayout *host_layout; void *dst; size_t dst_size; void *event; } tps_Buffer_ToHostBuffer_Args;
typedef struct { TPS_HEAD void *buffer; size_t on_device_size_in_bytes; } tps_Buffer_OnDeviceSizeInBytes_Args;
typedef struct { TPS_HEAD void *buffer; void *dst_device; void *dst_buffer; } tps_Buffer_CopyToDevice_Args;
typedef struct { TPS_HEAD void *buffer; void *dst_memory; void *dst_buffer; } tps_Buffer_CopyToMemory_Args;
typedef struct { TPS_HEAD void *buffer; void *memory; } tps_Buffer_Memory_Args;
typedef struct { TPS_HEAD void *buffer; void *event; } tps_Buffer_ReadyEvent_Args;

// Topologies and ahead-of-time compilation.
typedef struct { TPS_HEAD const char *topology_name; size_t topology_name_size; const tps_NamedValue *create_options; size_t num_options; void *topology; } tps_TopologyDescription_Create_Args;
typedef struct { TPS_HEAD void *topology; } tps_TopologyDescription_Destroy_Args;
typedef struct { TPS_HEAD void *topology; const char *platform_version; size_t platform_version_size; } tps_TopologyDescription_PlatformVersion_Args;
typedef struct { TPS_HEAD const void *topology; const char *platform_name; size_t platform_name_size; } tps_TopologyDescription_PlatformName_Args;
typedef struct { TPS_HEAD const void *topology; void *const *descriptions; size_t num_descriptions; } tps_TopologyDescription_GetDeviceDescriptions_Args;
typedef struct { TPS_HEAD void *topology; const char *serialized_bytes; size_t serialized_bytes_size; void *serialized_topology; void (*serialized_topology_deleter)(void *); } tps_TopologyDescription_Serialize_Args;
typedef struct { TPS_HEAD const char *serialized_topology; size_t serialized_topology_size; void *topology; } tps_TopologyDescription_Deserialize_Args;
typedef struct { TPS_HEAD void *topology; const tps_NamedValue *attributes; size_t num_attributes; } tps_TopologyDescription_Attributes_Args;
typedef struct { TPS_HEAD const void *topology; uint64_t fingerprint; } tps_TopologyDescription_Fingerprint_Args;
typedef struct { TPS_HEAD const void *topology; const tps_Program *program; const char *compile_options; size_t compile_options_size; void *client; void *executable; } tps_Compile_Args;

#endif
