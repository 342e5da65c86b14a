// The programs of stablehlo.mlir in generic form.

// ===== elementwise
"builtin.module"() ({
  "func.func"() <{function_type = (tensor<1000x1024xf32>, tensor<1000x1024xf32>, tensor<1000x1024xi1>, tensor<1000x1024xi32>) -> (tensor<1000x1024xf32>, tensor<1000x1024xi32>), sym_name = "main"}> ({
  ^bb0(%arg0: tensor<1000x1024xf32>, %arg1: tensor<1000x1024xf32>, %arg2: tensor<1000x1024xi1>, %arg3: tensor<1000x1024xi32>):
    %0 = "stablehlo.abs"(%arg0) : (tensor<1000x1024xf32>) -> tensor<1000x1024xf32>
    %1 = "stablehlo.add"(%0, %arg1) : (tensor<1000x1024xf32>, tensor<1000x1024xf32>) -> tensor<1000x1024xf32>
    %2 = "stablehlo.atan2"(%1, %arg1) : (tensor<1000x1024xf32>, tensor<1000x1024xf32>) -> tensor<1000x1024xf32>
    %3 = "stablehlo.cbrt"(%2) <{result_accuracy = #stablehlo.result_accuracy<mode = #stablehlo.result_accuracy_mode<DEFAULT>>}> : (tensor<1000x1024xf32>) -> tensor<1000x1024xf32>
    %4 = "stablehlo.ceil"(%3) : (tensor<1000x1024xf32>) -> tensor<1000x1024xf32>
    %5 = "stablehlo.cosine"(%4) : (tensor<1000x1024xf32>) -> tensor<1000x1024xf32>
    %6 = "stablehlo.divide"(%5, %arg1) : (tensor<1000x1024xf32>, tensor<1000x1024xf32>) -> tensor<1000x1024xf32>
    %7 = "stablehlo.exponential"(%6) : (tensor<1000x1024xf32>) -> tensor<1000x1024xf32>
    %8 = "stablehlo.exponential_minus_one"(%7) : (tensor<1000x1024xf32>) -> tensor<1000x1024xf32>
    %9 = "stablehlo.floor"(%8) : (tensor<1000x1024xf32>) -> tensor<1000x1024xf32>
    %10 = "stablehlo.log"(%9) : (tensor<1000x1024xf32>) -> tensor<1000x1024xf32>
    %11 = "stablehlo.log_plus_one"(%10) : (tensor<1000x1024xf32>) -> tensor<1000x1024xf32>
    %12 = "stablehlo.logistic"(%11) : (tensor<1000x1024xf32>) -> tensor<1000x1024xf32>
    %13 = "stablehlo.maximum"(%12, %arg1) : (tensor<1000x1024xf32>, tensor<1000x1024xf32>) -> tensor<1000x1024xf32>
    %14 = "stablehlo.minimum"(%13, %arg1) : (tensor<1000x1024xf32>, tensor<1000x1024xf32>) -> tensor<1000x1024xf32>
    %15 = "stablehlo.multiply"(%14, %arg1) : (tensor<1000x1024xf32>, tensor<1000x1024xf32>) -> tensor<1000x1024xf32>
    %16 = "stablehlo.negate"(%15) : (tensor<1000x1024xf32>) -> tensor<1000x1024xf32>
    %17 = "stablehlo.power"(%16, %arg1) : (tensor<1000x1024xf32>, tensor<1000x1024xf32>) -> tensor<1000x1024xf32>
    %18 = "stablehlo.remainder"(%17, %arg1) : (tensor<1000x1024xf32>, tensor<1000x1024xf32>) -> tensor<1000x1024xf32>
    %19 = "stablehlo.round_nearest_afz"(%18) : (tensor<1000x1024xf32>) -> tensor<1000x1024xf32>
    %20 = "stablehlo.round_nearest_even"(%19) : (tensor<1000x1024xf32>) -> tensor<1000x1024xf32>
    %21 = "stablehlo.rsqrt"(%20) : (tensor<1000x1024xf32>) -> tensor<1000x1024xf32>
    %22 = "stablehlo.sign"(%21) : (tensor<1000x1024xf32>) -> tensor<1000x1024xf32>
    %23 = "stablehlo.sine"(%22) : (tensor<1000x1024xf32>) -> tensor<1000x1024xf32>
    %24 = "stablehlo.sqrt"(%23) : (tensor<1000x1024xf32>) -> tensor<1000x1024xf32>
    %25 = "stablehlo.subtract"(%24, %arg1) : (tensor<1000x1024xf32>, tensor<1000x1024xf32>) -> tensor<1000x1024xf32>
    %26 = "stablehlo.tan"(%25) : (tensor<1000x1024xf32>) -> tensor<1000x1024xf32>
    %27 = "stablehlo.tanh"(%26) : (tensor<1000x1024xf32>) -> tensor<1000x1024xf32>
    %28 = "stablehlo.select"(%arg2, %27, %arg1) : (tensor<1000x1024xi1>, tensor<1000x1024xf32>, tensor<1000x1024xf32>) -> tensor<1000x1024xf32>
    %29 = "stablehlo.clamp"(%arg1, %28, %arg0) : (tensor<1000x1024xf32>, tensor<1000x1024xf32>, tensor<1000x1024xf32>) -> tensor<1000x1024xf32>
    %30 = "stablehlo.is_finite"(%29) : (tensor<1000x1024xf32>) -> tensor<1000x1024xi1>
    %31 = "stablehlo.and"(%30, %arg2) : (tensor<1000x1024xi1>, tensor<1000x1024xi1>) -> tensor<1000x1024xi1>
    %32 = "stablehlo.or"(%31, %arg2) : (tensor<1000x1024xi1>, tensor<1000x1024xi1>) -> tensor<1000x1024xi1>
    %33 = "stablehlo.xor"(%32, %arg2) : (tensor<1000x1024xi1>, tensor<1000x1024xi1>) -> tensor<1000x1024xi1>
    %34 = "stablehlo.not"(%33) : (tensor<1000x1024xi1>) -> tensor<1000x1024xi1>
    %35 = "stablehlo.select"(%34, %29, %arg0) : (tensor<1000x1024xi1>, tensor<1000x1024xf32>, tensor<1000x1024xf32>) -> tensor<1000x1024xf32>
    %36 = "stablehlo.reduce_precision"(%35) <{exponent_bits = 5 : i32, mantissa_bits = 10 : i32}> : (tensor<1000x1024xf32>) -> tensor<1000x1024xf32>
    %37 = "stablehlo.popcnt"(%arg3) : (tensor<1000x1024xi32>) -> tensor<1000x1024xi32>
    %38 = "stablehlo.count_leading_zeros"(%37) : (tensor<1000x1024xi32>) -> tensor<1000x1024xi32>
    %39 = "stablehlo.shift_left"(%38, %arg3) : (tensor<1000x1024xi32>, tensor<1000x1024xi32>) -> tensor<1000x1024xi32>
    %40 = "stablehlo.shift_right_arithmetic"(%39, %arg3) : (tensor<1000x1024xi32>, tensor<1000x1024xi32>) -> tensor<1000x1024xi32>
    %41 = "stablehlo.shift_right_logical"(%40, %arg3) : (tensor<1000x1024xi32>, tensor<1000x1024xi32>) -> tensor<1000x1024xi32>
    %42 = "stablehlo.divide"(%41, %arg3) : (tensor<1000x1024xi32>, tensor<1000x1024xi32>) -> tensor<1000x1024xi32>
    %43 = "stablehlo.remainder"(%42, %arg3) : (tensor<1000x1024xi32>, tensor<1000x1024xi32>) -> tensor<1000x1024xi32>
    %44 = "stablehlo.convert"(%36) : (tensor<1000x1024xf32>) -> tensor<1000x1024xi32>
    %45 = "stablehlo.add"(%43, %44) : (tensor<1000x1024xi32>, tensor<1000x1024xi32>) -> tensor<1000x1024xi32>
    "func.return"(%36, %45) : (tensor<1000x1024xf32>, tensor<1000x1024xi32>) -> ()
  }) : () -> ()
}) : () -> ()


// ===== comparisons
"builtin.module"() ({
  "func.func"() <{function_type = (tensor<2000xf32>, tensor<2000xi32>, tensor<2000xui8>, tensor<2000xi1>) -> tensor<2000xi1>, sym_name = "main"}> ({
  ^bb0(%arg0: tensor<2000xf32>, %arg1: tensor<2000xi32>, %arg2: tensor<2000xui8>, %arg3: tensor<2000xi1>):
    %0 = "stablehlo.compare"(%arg0, %arg0) <{compare_type = #stablehlo<comparison_type FLOAT>, comparison_direction = #stablehlo<comparison_direction EQ>}> : (tensor<2000xf32>, tensor<2000xf32>) -> tensor<2000xi1>
    %1 = "stablehlo.compare"(%arg1, %arg1) <{compare_type = #stablehlo<comparison_type SIGNED>, comparison_direction = #stablehlo<comparison_direction NE>}> : (tensor<2000xi32>, tensor<2000xi32>) -> tensor<2000xi1>
    %2 = "stablehlo.compare"(%arg2, %arg2) <{compare_type = #stablehlo<comparison_type UNSIGNED>, comparison_direction = #stablehlo<comparison_direction LE>}> : (tensor<2000xui8>, tensor<2000xui8>) -> tensor<2000xi1>
    %3 = "stablehlo.compare"(%arg0, %arg0) <{compare_type = #stablehlo<comparison_type TOTALORDER>, comparison_direction = #stablehlo<comparison_direction GE>}> : (tensor<2000xf32>, tensor<2000xf32>) -> tensor<2000xi1>
    %4 = "stablehlo.compare"(%0, %1) <{comparison_direction = #stablehlo<comparison_direction LT>}> : (tensor<2000xi1>, tensor<2000xi1>) -> tensor<2000xi1>
    %5 = "stablehlo.compare"(%2, %3) <{comparison_direction = #stablehlo<comparison_direction GT>}> : (tensor<2000xi1>, tensor<2000xi1>) -> tensor<2000xi1>
    %6 = "stablehlo.and"(%4, %5) : (tensor<2000xi1>, tensor<2000xi1>) -> tensor<2000xi1>
    "func.return"(%6) : (tensor<2000xi1>) -> ()
  }) : () -> ()
}) : () -> ()


// ===== complex numbers
"builtin.module"() ({
  "func.func"() <{function_type = (tensor<1000xf32>, tensor<1000xf32>) -> (tensor<1000xf32>, tensor<1000xf32>), sym_name = "main"}> ({
  ^bb0(%arg0: tensor<1000xf32>, %arg1: tensor<1000xf32>):
    %0 = "stablehlo.complex"(%arg0, %arg1) : (tensor<1000xf32>, tensor<1000xf32>) -> tensor<1000xcomplex<f32>>
    %1 = "stablehlo.real"(%0) : (tensor<1000xcomplex<f32>>) -> tensor<1000xf32>
    %2 = "stablehlo.imag"(%0) : (tensor<1000xcomplex<f32>>) -> tensor<1000xf32>
    %3 = "stablehlo.abs"(%0) : (tensor<1000xcomplex<f32>>) -> tensor<1000xf32>
    %4 = "stablehlo.add"(%2, %3) : (tensor<1000xf32>, tensor<1000xf32>) -> tensor<1000xf32>
    "func.return"(%1, %4) : (tensor<1000xf32>, tensor<1000xf32>) -> ()
  }) : () -> ()
}) : () -> ()


// ===== constants and ids
"builtin.module"() ({
  "func.func"() <{function_type = () -> (tensor<1000xi64>, tensor<4xf32>, tensor<2048x3xi32>, tensor<ui32>, tensor<2xi1>), sym_name = "main"}> ({
    %0 = "stablehlo.constant"() <{value = dense<9999999> : tensor<1000xi64>}> : () -> tensor<1000xi64>
    %1 = "stablehlo.constant"() <{value = dense<[1.000000e+00, -2.500000e+00, 0x7F800000, 1.000000e+30]> : tensor<4xf32>}> : () -> tensor<4xf32>
    %2 = "stablehlo.iota"() <{iota_dimension = 0 : i64}> : () -> tensor<2048x3xi32>
    %3 = "stablehlo.replica_id"() : () -> tensor<ui32>
    %4 = "stablehlo.partition_id"() : () -> tensor<ui32>
    %5 = "stablehlo.add"(%3, %4) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %6 = "stablehlo.constant"() <{value = dense<[true, false]> : tensor<2xi1>}> : () -> tensor<2xi1>
    %7 = "stablehlo.constant"() <{value = dense<[1.000000e+00, 2.000000e+00, 3.000000e+00, 4.000000e+00]> : tensor<4xf32>}> : () -> tensor<4xf32>
    %8 = "stablehlo.add"(%1, %7) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    "func.return"(%0, %8, %2, %5, %6) : (tensor<1000xi64>, tensor<4xf32>, tensor<2048x3xi32>, tensor<ui32>, tensor<2xi1>) -> ()
  }) : () -> ()
}) : () -> ()


// ===== shapes
"builtin.module"() ({
  "func.func"() <{function_type = (tensor<1000x8xf32>, tensor<f32>, tensor<i32>) -> (tensor<8x4x1000xf32>, tensor<1003x17xf32>, tensor<500x4xf32>, tensor<2000x8xf32>, tensor<1000x8xi32>, tensor<10x8xf32>, tensor<1000x8xf32>), sym_name = "main"}> ({
  ^bb0(%arg0: tensor<1000x8xf32>, %arg1: tensor<f32>, %arg2: tensor<i32>):
    %0 = "stablehlo.broadcast_in_dim"(%arg0) <{broadcast_dimensions = array<i64: 2, 0>}> : (tensor<1000x8xf32>) -> tensor<8x4x1000xf32>
    %1 = "stablehlo.pad"(%arg0, %arg1) <{edge_padding_high = array<i64: 2, 3>, edge_padding_low = array<i64: 1, -1>, interior_padding = array<i64: 0, 1>}> : (tensor<1000x8xf32>, tensor<f32>) -> tensor<1003x17xf32>
    %2 = "stablehlo.slice"(%arg0) <{limit_indices = array<i64: 1000, 8>, start_indices = array<i64: 0, 4>, strides = array<i64: 2, 1>}> : (tensor<1000x8xf32>) -> tensor<500x4xf32>
    %3 = "stablehlo.concatenate"(%arg0, %arg0) <{dimension = 0 : i64}> : (tensor<1000x8xf32>, tensor<1000x8xf32>) -> tensor<2000x8xf32>
    %4 = "stablehlo.bitcast_convert"(%arg0) : (tensor<1000x8xf32>) -> tensor<1000x8xi32>
    %5 = "stablehlo.dynamic_slice"(%arg0, %arg2, %arg2) <{slice_sizes = array<i64: 10, 8>}> : (tensor<1000x8xf32>, tensor<i32>, tensor<i32>) -> tensor<10x8xf32>
    %6 = "stablehlo.dynamic_update_slice"(%arg0, %5, %arg2, %arg2) : (tensor<1000x8xf32>, tensor<10x8xf32>, tensor<i32>, tensor<i32>) -> tensor<1000x8xf32>
    %7 = "stablehlo.transpose"(%6) <{permutation = array<i64: 1, 0>}> : (tensor<1000x8xf32>) -> tensor<8x1000xf32>
    %8 = "stablehlo.reverse"(%7) <{dimensions = array<i64: 0, 1>}> : (tensor<8x1000xf32>) -> tensor<8x1000xf32>
    %9 = "stablehlo.reshape"(%8) : (tensor<8x1000xf32>) -> tensor<1000x8xf32>
    "func.return"(%0, %1, %2, %3, %4, %5, %9) : (tensor<8x4x1000xf32>, tensor<1003x17xf32>, tensor<500x4xf32>, tensor<2000x8xf32>, tensor<1000x8xi32>, tensor<10x8xf32>, tensor<1000x8xf32>) -> ()
  }) : () -> ()
}) : () -> ()


// ===== products
"builtin.module"() ({
  "func.func"() <{function_type = (tensor<4x1024x2048xf32>, tensor<4x2048x1000xf32>) -> tensor<4x1024x1000xf32>, sym_name = "main"}> ({
  ^bb0(%arg0: tensor<4x1024x2048xf32>, %arg1: tensor<4x2048x1000xf32>):
    %0 = "stablehlo.dot_general"(%arg0, %arg1) <{algorithm = #stablehlo.dot_algorithm<lhs_precision_type = f32, rhs_precision_type = f32, accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1, allow_imprecise_accumulation = false>, dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [0], rhs_batching_dimensions = [0], lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [1]>, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]}> : (tensor<4x1024x2048xf32>, tensor<4x2048x1000xf32>) -> tensor<4x1024x1000xf32>
    %1 = "stablehlo.slice"(%arg0) <{limit_indices = array<i64: 1, 1024, 2048>, start_indices = array<i64: 0, 0, 0>, strides = array<i64: 1, 1, 1>}> : (tensor<4x1024x2048xf32>) -> tensor<1x1024x2048xf32>
    %2 = "stablehlo.reshape"(%1) : (tensor<1x1024x2048xf32>) -> tensor<1024x2048xf32>
    %3 = "stablehlo.transpose"(%2) <{permutation = array<i64: 1, 0>}> : (tensor<1024x2048xf32>) -> tensor<2048x1024xf32>
    %4 = "stablehlo.dot"(%2, %3) <{precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision HIGH>]}> : (tensor<1024x2048xf32>, tensor<2048x1024xf32>) -> tensor<1024x1024xf32>
    %5 = "stablehlo.slice"(%4) <{limit_indices = array<i64: 1024, 1000>, start_indices = array<i64: 0, 0>, strides = array<i64: 1, 1>}> : (tensor<1024x1024xf32>) -> tensor<1024x1000xf32>
    %6 = "stablehlo.broadcast_in_dim"(%5) <{broadcast_dimensions = array<i64: 1, 2>}> : (tensor<1024x1000xf32>) -> tensor<4x1024x1000xf32>
    %7 = "stablehlo.add"(%0, %6) : (tensor<4x1024x1000xf32>, tensor<4x1024x1000xf32>) -> tensor<4x1024x1000xf32>
    "func.return"(%7) : (tensor<4x1024x1000xf32>) -> ()
  }) : () -> ()
}) : () -> ()


// ===== a convolution with all it can have
"builtin.module"() ({
  "func.func"() <{function_type = (tensor<2x1024x8x4xf32>, tensor<3x3x2x2000xf32>) -> tensor<2x512x15x2000xf32>, sym_name = "main"}> ({
  ^bb0(%arg0: tensor<2x1024x8x4xf32>, %arg1: tensor<3x3x2x2000xf32>):
    %0 = "stablehlo.convolution"(%arg0, %arg1) <{batch_group_count = 1 : i64, dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>, feature_group_count = 2 : i64, lhs_dilation = array<i64: 1, 2>, padding = dense<1> : tensor<2x2xi64>, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision DEFAULT>], rhs_dilation = array<i64: 1, 1>, window_reversal = array<i1: false, true>, window_strides = array<i64: 2, 1>}> : (tensor<2x1024x8x4xf32>, tensor<3x3x2x2000xf32>) -> tensor<2x512x15x2000xf32>
    %1 = "stablehlo.add"(%0, %0) : (tensor<2x512x15x2000xf32>, tensor<2x512x15x2000xf32>) -> tensor<2x512x15x2000xf32>
    "func.return"(%1) : (tensor<2x512x15x2000xf32>) -> ()
  }) : () -> ()
}) : () -> ()


// ===== the gradient of a convolution
"builtin.module"() ({
  "func.func"() <{function_type = (tensor<2x224x224x3xf32>, tensor<2x218x218x64xf32>) -> tensor<7x7x3x64xf32>, sym_name = "main"}> ({
  ^bb0(%arg0: tensor<2x224x224x3xf32>, %arg1: tensor<2x218x218x64xf32>):
    %0 = "stablehlo.convolution"(%arg0, %arg1) <{batch_group_count = 1 : i64, dimension_numbers = #stablehlo.conv<[f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f]>, feature_group_count = 1 : i64, rhs_dilation = array<i64: 1, 1>}> : (tensor<2x224x224x3xf32>, tensor<2x218x218x64xf32>) -> tensor<7x7x3x64xf32>
    "func.return"(%0) : (tensor<7x7x3x64xf32>) -> ()
  }) : () -> ()
}) : () -> ()


// ===== gathers and scatters
"builtin.module"() ({
  "func.func"() <{function_type = (tensor<50257x1024xf32>, tensor<2048x1xi32>, tensor<2048x1024xf32>) -> (tensor<2048x1024xf32>, tensor<50257x1024xf32>, tensor<50257x1024xf32>), sym_name = "main"}> ({
  ^bb0(%arg0: tensor<50257x1024xf32>, %arg1: tensor<2048x1xi32>, %arg2: tensor<2048x1024xf32>):
    %0 = "stablehlo.gather"(%arg0, %arg1) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 1024>}> : (tensor<50257x1024xf32>, tensor<2048x1xi32>) -> tensor<2048x1024xf32>
    %1 = "stablehlo.scatter"(%arg0, %arg1, %arg2) <{indices_are_sorted = true, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = true}> ({
    ^bb0(%arg3: tensor<f32>, %arg4: tensor<f32>):
      %2 = "stablehlo.add"(%arg3, %arg4) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%2) : (tensor<f32>) -> ()
    }) : (tensor<50257x1024xf32>, tensor<2048x1xi32>, tensor<2048x1024xf32>) -> tensor<50257x1024xf32>
    "func.return"(%0, %1, %arg0) : (tensor<2048x1024xf32>, tensor<50257x1024xf32>, tensor<50257x1024xf32>) -> ()
  }) : () -> ()
}) : () -> ()


// ===== reductions
"builtin.module"() ({
  "func.func"() <{function_type = (tensor<1000x1024xf32>, tensor<f32>, tensor<1000x1024xi32>, tensor<i32>) -> (tensor<1024xf32>, tensor<1000xf32>, tensor<1000xi32>), sym_name = "main"}> ({
  ^bb0(%arg0: tensor<1000x1024xf32>, %arg1: tensor<f32>, %arg2: tensor<1000x1024xi32>, %arg3: tensor<i32>):
    %0 = "stablehlo.reduce"(%arg0, %arg1) <{dimensions = array<i64: 0>}> ({
    ^bb0(%arg8: tensor<f32>, %arg9: tensor<f32>):
      %5 = "stablehlo.add"(%arg8, %arg9) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%5) : (tensor<f32>) -> ()
    }) : (tensor<1000x1024xf32>, tensor<f32>) -> tensor<1024xf32>
    %1:2 = "stablehlo.reduce"(%arg0, %arg2, %arg1, %arg3) <{dimensions = array<i64: 1>}> ({
    ^bb0(%arg4: tensor<f32>, %arg5: tensor<i32>, %arg6: tensor<f32>, %arg7: tensor<i32>):
      %2 = "stablehlo.compare"(%arg4, %arg6) <{compare_type = #stablehlo<comparison_type FLOAT>, comparison_direction = #stablehlo<comparison_direction GE>}> : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %3 = "stablehlo.select"(%2, %arg4, %arg6) : (tensor<i1>, tensor<f32>, tensor<f32>) -> tensor<f32>
      %4 = "stablehlo.select"(%2, %arg5, %arg7) : (tensor<i1>, tensor<i32>, tensor<i32>) -> tensor<i32>
      "stablehlo.return"(%3, %4) : (tensor<f32>, tensor<i32>) -> ()
    }) : (tensor<1000x1024xf32>, tensor<1000x1024xi32>, tensor<f32>, tensor<i32>) -> (tensor<1000xf32>, tensor<1000xi32>)
    "func.return"(%0, %1#0, %1#1) : (tensor<1024xf32>, tensor<1000xf32>, tensor<1000xi32>) -> ()
  }) : () -> ()
}) : () -> ()


// ===== windows
"builtin.module"() ({
  "func.func"() <{function_type = (tensor<2x1024x1000xf32>, tensor<f32>, tensor<2x512x1000xf32>) -> (tensor<2x1024x1000xf32>, tensor<2x1024x1000xf32>), sym_name = "main"}> ({
  ^bb0(%arg0: tensor<2x1024x1000xf32>, %arg1: tensor<f32>, %arg2: tensor<2x512x1000xf32>):
    %0 = "stablehlo.reduce_window"(%arg0, %arg1) <{base_dilations = array<i64: 1, 1, 1>, padding = dense<[[0, 0], [1, 1], [0, 0]]> : tensor<3x2xi64>, window_dilations = array<i64: 1, 1, 1>, window_dimensions = array<i64: 1, 3, 1>, window_strides = array<i64: 1, 1, 1>}> ({
    ^bb0(%arg7: tensor<f32>, %arg8: tensor<f32>):
      %4 = "stablehlo.maximum"(%arg7, %arg8) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%4) : (tensor<f32>) -> ()
    }) : (tensor<2x1024x1000xf32>, tensor<f32>) -> tensor<2x1024x1000xf32>
    %1 = "stablehlo.select_and_scatter"(%arg0, %arg2, %arg1) <{padding = dense<0> : tensor<3x2xi64>, window_dimensions = array<i64: 1, 2, 1>, window_strides = array<i64: 1, 2, 1>}> ({
    ^bb0(%arg5: tensor<f32>, %arg6: tensor<f32>):
      %3 = "stablehlo.compare"(%arg5, %arg6) <{comparison_direction = #stablehlo<comparison_direction GE>}> : (tensor<f32>, tensor<f32>) -> tensor<i1>
      "stablehlo.return"(%3) : (tensor<i1>) -> ()
    }, {
    ^bb0(%arg3: tensor<f32>, %arg4: tensor<f32>):
      %2 = "stablehlo.add"(%arg3, %arg4) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%2) : (tensor<f32>) -> ()
    }) : (tensor<2x1024x1000xf32>, tensor<2x512x1000xf32>, tensor<f32>) -> tensor<2x1024x1000xf32>
    "func.return"(%0, %1) : (tensor<2x1024x1000xf32>, tensor<2x1024x1000xf32>) -> ()
  }) : () -> ()
}) : () -> ()


// ===== sorts and maps
"builtin.module"() ({
  "func.func"() <{function_type = (tensor<1000xf32>, tensor<1000xi32>) -> (tensor<1000xf32>, tensor<1000xi32>, tensor<1000xf32>), sym_name = "main"}> ({
  ^bb0(%arg0: tensor<1000xf32>, %arg1: tensor<1000xi32>):
    %0:2 = "stablehlo.sort"(%arg0, %arg1) <{dimension = 0 : i64, is_stable = true}> ({
    ^bb0(%arg6: tensor<f32>, %arg7: tensor<f32>, %arg8: tensor<i32>, %arg9: tensor<i32>):
      %5 = "stablehlo.compare"(%arg6, %arg7) <{compare_type = #stablehlo<comparison_type TOTALORDER>, comparison_direction = #stablehlo<comparison_direction LE>}> : (tensor<f32>, tensor<f32>) -> tensor<i1>
      "stablehlo.return"(%5) : (tensor<i1>) -> ()
    }) : (tensor<1000xf32>, tensor<1000xi32>) -> (tensor<1000xf32>, tensor<1000xi32>)
    %1 = "stablehlo.map"(%arg0, %arg0) <{dimensions = array<i64: 0>}> ({
    ^bb0(%arg4: tensor<f32>, %arg5: tensor<f32>):
      %4 = "stablehlo.multiply"(%arg4, %arg5) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%4) : (tensor<f32>) -> ()
    }) : (tensor<1000xf32>, tensor<1000xf32>) -> tensor<1000xf32>
    %2 = "stablehlo.sort"(%1) <{dimension = 0 : i64, is_stable = false}> ({
    ^bb0(%arg2: tensor<f32>, %arg3: tensor<f32>):
      %3 = "stablehlo.compare"(%arg2, %arg3) <{comparison_direction = #stablehlo<comparison_direction GT>}> : (tensor<f32>, tensor<f32>) -> tensor<i1>
      "stablehlo.return"(%3) : (tensor<i1>) -> ()
    }) : (tensor<1000xf32>) -> tensor<1000xf32>
    "func.return"(%0#0, %0#1, %2) : (tensor<1000xf32>, tensor<1000xi32>, tensor<1000xf32>) -> ()
  }) : () -> ()
}) : () -> ()


// ===== control flow
"builtin.module"() ({
  "func.func"() <{function_type = (tensor<1000x8xf32>, tensor<i1>, tensor<i32>) -> (tensor<1000x8xf32>, tensor<1000x8xf32>, tensor<i32>), sym_name = "main"}> ({
  ^bb0(%arg1: tensor<1000x8xf32>, %arg2: tensor<i1>, %arg3: tensor<i32>):
    %1 = "stablehlo.constant"() <{value = dense<1> : tensor<i32>}> : () -> tensor<i32>
    %2 = "stablehlo.constant"() <{value = dense<10> : tensor<i32>}> : () -> tensor<i32>
    %3 = "stablehlo.if"(%arg2) ({
      "stablehlo.return"(%arg1) : (tensor<1000x8xf32>) -> ()
    }, {
      %13 = "stablehlo.negate"(%arg1) : (tensor<1000x8xf32>) -> tensor<1000x8xf32>
      "stablehlo.return"(%13) : (tensor<1000x8xf32>) -> ()
    }) : (tensor<i1>) -> tensor<1000x8xf32>
    %4 = "stablehlo.case"(%arg3) ({
      "stablehlo.return"(%arg1) : (tensor<1000x8xf32>) -> ()
    }, {
      "stablehlo.return"(%3) : (tensor<1000x8xf32>) -> ()
    }, {
      %12 = "stablehlo.abs"(%arg1) : (tensor<1000x8xf32>) -> tensor<1000x8xf32>
      "stablehlo.return"(%12) : (tensor<1000x8xf32>) -> ()
    }) : (tensor<i32>) -> tensor<1000x8xf32>
    %5:2 = "stablehlo.while"(%arg3, %4) ({
    ^bb0(%arg6: tensor<i32>, %arg7: tensor<1000x8xf32>):
      %11 = "stablehlo.compare"(%arg6, %2) <{compare_type = #stablehlo<comparison_type SIGNED>, comparison_direction = #stablehlo<comparison_direction LT>}> : (tensor<i32>, tensor<i32>) -> tensor<i1>
      "stablehlo.return"(%11) : (tensor<i1>) -> ()
    }, {
    ^bb0(%arg4: tensor<i32>, %arg5: tensor<1000x8xf32>):
      %6 = "stablehlo.add"(%arg4, %1) : (tensor<i32>, tensor<i32>) -> tensor<i32>
      %7 = "stablehlo.divide"(%2, %6) : (tensor<i32>, tensor<i32>) -> tensor<i32>
      %8 = "stablehlo.remainder"(%7, %2) : (tensor<i32>, tensor<i32>) -> tensor<i32>
      %9 = "stablehlo.add"(%8, %6) : (tensor<i32>, tensor<i32>) -> tensor<i32>
      %10 = "func.call"(%arg5) <{callee = @twice}> : (tensor<1000x8xf32>) -> tensor<1000x8xf32>
      "stablehlo.return"(%9, %10) : (tensor<i32>, tensor<1000x8xf32>) -> ()
    }) {mhlo.frontend_attributes = {a = "b"}} : (tensor<i32>, tensor<1000x8xf32>) -> (tensor<i32>, tensor<1000x8xf32>)
    "func.return"(%3, %5#1, %5#0) : (tensor<1000x8xf32>, tensor<1000x8xf32>, tensor<i32>) -> ()
  }) : () -> ()
  "func.func"() <{function_type = (tensor<1000x8xf32>) -> tensor<1000x8xf32>, sym_name = "twice", sym_visibility = "private"}> ({
  ^bb0(%arg0: tensor<1000x8xf32>):
    %0 = "stablehlo.add"(%arg0, %arg0) : (tensor<1000x8xf32>, tensor<1000x8xf32>) -> tensor<1000x8xf32>
    "func.return"(%0) : (tensor<1000x8xf32>) -> ()
  }) : () -> ()
}) : () -> ()


// ===== linear algebra
"builtin.module"() ({
  "func.func"() <{function_type = (tensor<2x16x16xf32>, tensor<2x16x1000xf32>) -> (tensor<2x16x16xf32>, tensor<2x16x1000xf32>), sym_name = "main"}> ({
  ^bb0(%arg0: tensor<2x16x16xf32>, %arg1: tensor<2x16x1000xf32>):
    %0 = "stablehlo.cholesky"(%arg0) <{lower = true}> : (tensor<2x16x16xf32>) -> tensor<2x16x16xf32>
    %1 = "stablehlo.triangular_solve"(%0, %arg1) <{left_side = true, lower = true, transpose_a = #stablehlo<transpose NO_TRANSPOSE>, unit_diagonal = false}> : (tensor<2x16x16xf32>, tensor<2x16x1000xf32>) -> tensor<2x16x1000xf32>
    "func.return"(%0, %1) : (tensor<2x16x16xf32>, tensor<2x16x1000xf32>) -> ()
  }) : () -> ()
}) : () -> ()


// ===== transforms
"builtin.module"() ({
  "func.func"() <{function_type = (tensor<2x1000xf32>) -> tensor<2x1000xf32>, sym_name = "main"}> ({
  ^bb0(%arg0: tensor<2x1000xf32>):
    %0 = "stablehlo.fft"(%arg0) <{fft_length = array<i64: 1000>, fft_type = #stablehlo<fft_type RFFT>}> : (tensor<2x1000xf32>) -> tensor<2x501xcomplex<f32>>
    %1 = "stablehlo.fft"(%0) <{fft_length = array<i64: 501>, fft_type = #stablehlo<fft_type FFT>}> : (tensor<2x501xcomplex<f32>>) -> tensor<2x501xcomplex<f32>>
    %2 = "stablehlo.fft"(%1) <{fft_length = array<i64: 501>, fft_type = #stablehlo<fft_type IFFT>}> : (tensor<2x501xcomplex<f32>>) -> tensor<2x501xcomplex<f32>>
    %3 = "stablehlo.fft"(%2) <{fft_length = array<i64: 1000>, fft_type = #stablehlo<fft_type IRFFT>}> : (tensor<2x501xcomplex<f32>>) -> tensor<2x1000xf32>
    "func.return"(%3) : (tensor<2x1000xf32>) -> ()
  }) : () -> ()
}) : () -> ()


// ===== random numbers
"builtin.module"() ({
  "func.func"() <{function_type = (tensor<2xui64>, tensor<f32>) -> (tensor<2xui64>, tensor<1000x1024xui32>, tensor<1000xf32>, tensor<1000xf32>), sym_name = "main"}> ({
  ^bb0(%arg0: tensor<2xui64>, %arg1: tensor<f32>):
    %0:2 = "stablehlo.rng_bit_generator"(%arg0) <{rng_algorithm = #stablehlo<rng_algorithm THREE_FRY>}> : (tensor<2xui64>) -> (tensor<2xui64>, tensor<1000x1024xui32>)
    %1 = "stablehlo.constant"() <{value = dense<1000> : tensor<1xi64>}> : () -> tensor<1xi64>
    %2 = "stablehlo.rng"(%arg1, %arg1, %1) <{rng_distribution = #stablehlo<rng_distribution UNIFORM>}> : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<1000xf32>
    %3 = "stablehlo.rng"(%arg1, %arg1, %1) <{rng_distribution = #stablehlo<rng_distribution NORMAL>}> : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<1000xf32>
    "func.return"(%0#0, %0#1, %2, %3) : (tensor<2xui64>, tensor<1000x1024xui32>, tensor<1000xf32>, tensor<1000xf32>) -> ()
  }) : () -> ()
}) : () -> ()


// ===== batch normalization
"builtin.module"() ({
  "func.func"() <{function_type = (tensor<8x32x1000xf32>, tensor<1000xf32>) -> (tensor<8x32x1000xf32>, tensor<8x32x1000xf32>, tensor<8x32x1000xf32>), sym_name = "main"}> ({
  ^bb0(%arg0: tensor<8x32x1000xf32>, %arg1: tensor<1000xf32>):
    %0:3 = "stablehlo.batch_norm_training"(%arg0, %arg1, %arg1) <{epsilon = 1.000000e-03 : f32, feature_index = 2 : i64}> : (tensor<8x32x1000xf32>, tensor<1000xf32>, tensor<1000xf32>) -> (tensor<8x32x1000xf32>, tensor<1000xf32>, tensor<1000xf32>)
    %1 = "stablehlo.batch_norm_inference"(%arg0, %arg1, %arg1, %0#1, %0#2) <{epsilon = 1.000000e-03 : f32, feature_index = 2 : i64}> : (tensor<8x32x1000xf32>, tensor<1000xf32>, tensor<1000xf32>, tensor<1000xf32>, tensor<1000xf32>) -> tensor<8x32x1000xf32>
    %2:3 = "stablehlo.batch_norm_grad"(%arg0, %arg1, %0#1, %0#2, %1) <{epsilon = 1.000000e-03 : f32, feature_index = 2 : i64}> : (tensor<8x32x1000xf32>, tensor<1000xf32>, tensor<1000xf32>, tensor<1000xf32>, tensor<8x32x1000xf32>) -> (tensor<8x32x1000xf32>, tensor<1000xf32>, tensor<1000xf32>)
    "func.return"(%0#0, %1, %2#0) : (tensor<8x32x1000xf32>, tensor<8x32x1000xf32>, tensor<8x32x1000xf32>) -> ()
  }) : () -> ()
}) : () -> ()


// ===== collectives (2 partitions)
"builtin.module"() ({
  "func.func"() <{function_type = (tensor<8x1000xf32>) -> (tensor<8x1000xf32>, tensor<16x1000xf32>, tensor<4x1000xf32>, tensor<8x1000xf32>, tensor<8x1000xf32>), sym_name = "main"}> ({
  ^bb0(%arg0: tensor<8x1000xf32>):
    %0 = "stablehlo.all_reduce"(%arg0) <{channel_handle = #stablehlo.channel_handle<handle = 1000, type = 1>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> ({
    ^bb0(%arg3: tensor<f32>, %arg4: tensor<f32>):
      %6 = "stablehlo.add"(%arg3, %arg4) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%6) : (tensor<f32>) -> ()
    }) : (tensor<8x1000xf32>) -> tensor<8x1000xf32>
    %1 = "stablehlo.all_gather"(%arg0) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1001, type = 1>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> : (tensor<8x1000xf32>) -> tensor<16x1000xf32>
    %2 = "stablehlo.reduce_scatter"(%arg0) <{channel_handle = #stablehlo.channel_handle<handle = 1002, type = 1>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, scatter_dimension = 0 : i64, use_global_device_ids}> ({
    ^bb0(%arg1: tensor<f32>, %arg2: tensor<f32>):
      %5 = "stablehlo.add"(%arg1, %arg2) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%5) : (tensor<f32>) -> ()
    }) : (tensor<8x1000xf32>) -> tensor<4x1000xf32>
    %3 = "stablehlo.all_to_all"(%arg0) <{channel_handle = #stablehlo.channel_handle<handle = 1003, type = 1>, concat_dimension = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, split_count = 2 : i64, split_dimension = 0 : i64}> : (tensor<8x1000xf32>) -> tensor<8x1000xf32>
    %4 = "stablehlo.collective_permute"(%arg0) <{channel_handle = #stablehlo.channel_handle<handle = 1004, type = 1>, source_target_pairs = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>}> : (tensor<8x1000xf32>) -> tensor<8x1000xf32>
    "func.return"(%0, %1, %2, %3, %4) : (tensor<8x1000xf32>, tensor<16x1000xf32>, tensor<4x1000xf32>, tensor<8x1000xf32>, tensor<8x1000xf32>) -> ()
  }) : () -> ()
}) : () -> ()


// ===== tokens, barriers, tuples
"builtin.module"() ({
  "func.func"() <{function_type = (tensor<1000xf32>, tensor<1000xf32>) -> (tensor<1000xf32>, tensor<1000xf32>), sym_name = "main"}> ({
  ^bb0(%arg0: tensor<1000xf32>, %arg1: tensor<1000xf32>):
    %0 = "stablehlo.create_token"() : () -> !stablehlo.token
    %1 = "stablehlo.after_all"(%0, %0) : (!stablehlo.token, !stablehlo.token) -> !stablehlo.token
    %2:2 = "stablehlo.optimization_barrier"(%arg0, %arg1) : (tensor<1000xf32>, tensor<1000xf32>) -> (tensor<1000xf32>, tensor<1000xf32>)
    %3 = "stablehlo.tuple"(%2#0, %2#1) : (tensor<1000xf32>, tensor<1000xf32>) -> tuple<tensor<1000xf32>, tensor<1000xf32>>
    %4 = "stablehlo.get_tuple_element"(%3) <{index = 1 : i32}> : (tuple<tensor<1000xf32>, tensor<1000xf32>>) -> tensor<1000xf32>
    "func.return"(%4, %2#0) : (tensor<1000xf32>, tensor<1000xf32>) -> ()
  }) : () -> ()
}) : () -> ()


// ===== custom calls and composites on the host
"builtin.module"() ({
  "func.func"() <{function_type = (tensor<1000xf32>) -> (tensor<10xf32>, tensor<10xi32>, tensor<1000xf32>), sym_name = "main"}> ({
  ^bb0(%arg1: tensor<1000xf32>):
    %1:2 = "stablehlo.custom_call"(%arg1) <{backend_config = "", call_target_name = "TopK", called_computations = []}> {jax.name = "{devices=[9999]", mhlo.attributes = {k = 10 : i64}} : (tensor<1000xf32>) -> (tensor<10xf32>, tensor<10xi32>)
    %2 = "stablehlo.composite"(%arg1) <{composite_attributes = {dimension_numbers = [99999], note = "{manual}"}, decomposition = @decomposition, name = "my.op", version = 1 : i32}> : (tensor<1000xf32>) -> tensor<1000xf32>
    "func.return"(%1#0, %1#1, %2) : (tensor<10xf32>, tensor<10xi32>, tensor<1000xf32>) -> ()
  }) : () -> ()
  "func.func"() <{function_type = (tensor<1000xf32>) -> tensor<1000xf32>, sym_name = "decomposition", sym_visibility = "private"}> ({
  ^bb0(%arg0: tensor<1000xf32>):
    %0 = "stablehlo.tanh"(%arg0) : (tensor<1000xf32>) -> tensor<1000xf32>
    "func.return"(%0) : (tensor<1000xf32>) -> ()
  }) : () -> ()
}) : () -> ()


// ===== chlo
"builtin.module"() ({
  "func.func"() <{function_type = (tensor<1000xf32>, tensor<f32>) -> (tensor<1000xf32>, tensor<10xf32>, tensor<10xi32>), sym_name = "main"}> ({
  ^bb0(%arg0: tensor<1000xf32>, %arg1: tensor<f32>):
    %0 = "chlo.broadcast_add"(%arg0, %arg1) <{broadcast_dimensions = array<i64>}> : (tensor<1000xf32>, tensor<f32>) -> tensor<1000xf32>
    %1 = "chlo.erf"(%0) : (tensor<1000xf32>) -> tensor<1000xf32>
    %2 = "chlo.erf_inv"(%1) : (tensor<1000xf32>) -> tensor<1000xf32>
    %3 = "chlo.lgamma"(%2) : (tensor<1000xf32>) -> tensor<1000xf32>
    %4:2 = "chlo.top_k"(%3) <{k = 10 : i64}> : (tensor<1000xf32>) -> (tensor<10xf32>, tensor<10xi32>)
    "func.return"(%3, %4#0, %4#1) : (tensor<1000xf32>, tensor<10xf32>, tensor<10xi32>) -> ()
  }) : () -> ()
}) : () -> ()


// ===== bounded sizes within
"builtin.module"() ({
  "func.func"() <{function_type = (tensor<1000xf32>, tensor<i32>) -> tensor<i32>, sym_name = "main"}> ({
  ^bb0(%arg0: tensor<1000xf32>, %arg1: tensor<i32>):
    %0 = "stablehlo.set_dimension_size"(%arg0, %arg1) <{dimension = 0 : i64}> : (tensor<1000xf32>, tensor<i32>) -> tensor<?xf32, #stablehlo.bounds<1000>>
    %1 = "stablehlo.get_dimension_size"(%0) <{dimension = 0 : i64}> : (tensor<?xf32, #stablehlo.bounds<1000>>) -> tensor<i32>
    "func.return"(%1) : (tensor<i32>) -> ()
  }) : () -> ()
}) : () -> ()


// ===== shapes by operands
"builtin.module"() ({
  "func.func"() <{function_type = (tensor<1000xf32>, tensor<f32>) -> (tensor<1000xf32>, tensor<2x1000xf32>, tensor<1002xf32>), sym_name = "main"}> ({
  ^bb0(%arg0: tensor<1000xf32>, %arg1: tensor<f32>):
    %0 = "stablehlo.constant"() <{value = dense<1000> : tensor<1xi32>}> : () -> tensor<1xi32>
    %1 = "stablehlo.constant"() <{value = dense<[2, 1000]> : tensor<2xi32>}> : () -> tensor<2xi32>
    %2 = "stablehlo.constant"() <{value = dense<1> : tensor<1xi32>}> : () -> tensor<1xi32>
    %3 = "stablehlo.constant"() <{value = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
    %4 = "stablehlo.dynamic_reshape"(%arg0, %0) : (tensor<1000xf32>, tensor<1xi32>) -> tensor<1000xf32>
    %5 = "stablehlo.dynamic_broadcast_in_dim"(%arg0, %1) <{broadcast_dimensions = array<i64: 1>}> : (tensor<1000xf32>, tensor<2xi32>) -> tensor<2x1000xf32>
    %6 = "stablehlo.dynamic_pad"(%arg0, %arg1, %2, %2, %3) : (tensor<1000xf32>, tensor<f32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<1002xf32>
    %7 = "stablehlo.dynamic_iota"(%0) <{iota_dimension = 0 : i64}> : (tensor<1xi32>) -> tensor<1000xf32>
    %8 = "stablehlo.add"(%4, %7) : (tensor<1000xf32>, tensor<1000xf32>) -> tensor<1000xf32>
    "func.return"(%8, %5, %6) : (tensor<1000xf32>, tensor<2x1000xf32>, tensor<1002xf32>) -> ()
  }) : () -> ()
}) : () -> ()


// ===== Shardy (2 partitions)
"builtin.module"() ({
  "sdy.mesh"() <{mesh = #sdy.mesh<["data"=2]>, sym_name = "mesh"}> : () -> ()
  "func.func"() <{arg_attrs = [{sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>}], function_type = (tensor<2000x8xf32>) -> (tensor<2000x8xf32>, tensor<2000x8xf32>), res_attrs = [{sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {?}]>}, {}], sym_name = "main"}> ({
  ^bb0(%arg0: tensor<2000x8xf32>):
    %0 = "sdy.sharding_constraint"(%arg0) <{sharding = #sdy.sharding<@mesh, [{"data", ?}, {}]>}> : (tensor<2000x8xf32>) -> tensor<2000x8xf32>
    %1 = "sdy.manual_computation"(%0) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"data"}, {}]>]>, manual_axes = #sdy<manual_axes{"data"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"data"}, {}]>]>}> ({
    ^bb0(%arg1: tensor<1000x8xf32>):
      %3 = "stablehlo.tanh"(%arg1) : (tensor<1000x8xf32>) -> tensor<1000x8xf32>
      "sdy.return"(%3) : (tensor<1000x8xf32>) -> ()
    }) : (tensor<2000x8xf32>) -> tensor<2000x8xf32>
    %2 = "stablehlo.add"(%1, %1) {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"data"}, {}]>]>} : (tensor<2000x8xf32>, tensor<2000x8xf32>) -> tensor<2000x8xf32>
    "sdy.sharding_group"(%2) <{group_id = 1000 : i64}> : (tensor<2000x8xf32>) -> ()
    "func.return"(%1, %2) : (tensor<2000x8xf32>, tensor<2000x8xf32>) -> ()
  }) : () -> ()
}) : () -> ()


// ===== GSPMD (2 partitions)
"builtin.module"() ({
  "func.func"() <{arg_attrs = [{jax.arg_info = "{unknown}", mhlo.sharding = "{devices=[2,1]<=[2]}"}], function_type = (tensor<2000x8xf32>) -> tensor<2000x8xf32>, res_attrs = [{mhlo.sharding = "{replicated}"}], sym_name = "main"}> ({
  ^bb0(%arg0: tensor<2000x8xf32>):
    %0 = "stablehlo.custom_call"(%arg0) <{call_target_name = "Sharding"}> {mhlo.sharding = "{devices=[1,2]<=[2]}"} : (tensor<2000x8xf32>) -> tensor<2000x8xf32>
    %1 = "stablehlo.add"(%0, %0) {mhlo.sharding = "{devices=[2,1]0,1}"} : (tensor<2000x8xf32>, tensor<2000x8xf32>) -> tensor<2000x8xf32>
    "func.return"(%1) : (tensor<2000x8xf32>) -> ()
  }) : () -> ()
}) : () -> ()


// ===== attributes named like others, texts, locations
#loc2 = loc("-":3:19)
#loc3 = loc("-":3:97)
"builtin.module"() <{sym_name = "m"}> ({
  "func.func"() <{arg_attrs = [{a.dimension_numbers = 123456 : i64, jax.buffer_donor = true}, {tf.aliasing_output = 1 : i32}], function_type = (tensor<1000xf32>, tensor<1000xf32>) -> (tensor<1000xf32>, tensor<1000xf32>), res_attrs = [{jax.result_info = "{manual} tensor<99999999999999999999xf32>"}, {}], sym_name = "main"}> ({
  ^bb0(%arg0: tensor<1000xf32> loc("-":3:19), %arg1: tensor<1000xf32> loc("-":3:97)):
    %0 = "stablehlo.add"(%arg0, %arg1) {b.lhs_dilation = 99999999999 : i64, c.padding = [[9223372036854775807]], d.dim_numbers = "[b, 9999999]"} : (tensor<1000xf32>, tensor<1000xf32>) -> tensor<1000xf32> loc(#loc8)
    %1 = "stablehlo.multiply"(%0, %arg0) {mhlo.frontend_attributes = {dimension_numbers = "99999", k = "xla.sdy.meshes"}} : (tensor<1000xf32>, tensor<1000xf32>) -> tensor<1000xf32> loc(#loc9)
    "func.return"(%1, %0) : (tensor<1000xf32>, tensor<1000xf32>) -> () loc(#loc7)
  }) : () -> () loc(#loc1)
}) {mhlo.note = "mhlo.input_output_alias = [stablehlo.infeed({devices=[0]<=[0]})]"} : () -> () loc(#loc)
#loc = loc("-":2:1)
#loc1 = loc("-":3:3)
#loc4 = loc("{unknown}")
#loc5 = loc("a")
#loc6 = loc("b":1000:2000)
#loc7 = loc("-":6:5)
#loc8 = loc("stablehlo.outfeed"(#loc4))
#loc9 = loc(callsite(#loc5 at #loc6))


// ===== what the CPU plugin has not (2 partitions)
"builtin.module"() ({
  "func.func"() <{function_type = (tensor<5000x1024xf32>, tensor<2048x1xi32>, !stablehlo.token) -> (tensor<2048x1024xf32>, tensor<?x1024xf32>, tensor<5000x1024xf32>, tensor<5000x1024xf32>), sym_name = "main"}> ({
  ^bb0(%arg0: tensor<5000x1024xf32>, %arg1: tensor<2048x1xi32>, %arg2: !stablehlo.token):
    %0 = "stablehlo.constant"() <{value = dense<[1, 1024]> : tensor<2xi32>}> : () -> tensor<2xi32>
    %1 = "stablehlo.constant"() <{value = dense<0> : tensor<2xi32>}> : () -> tensor<2xi32>
    %2 = "stablehlo.dynamic_gather"(%arg0, %arg1, %0) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>}> : (tensor<5000x1024xf32>, tensor<2048x1xi32>, tensor<2xi32>) -> tensor<2048x1024xf32>
    %3 = "stablehlo.real_dynamic_slice"(%arg0, %1, %0, %0) : (tensor<5000x1024xf32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> tensor<?x1024xf32>
    %4 = "stablehlo.collective_broadcast"(%arg0) <{channel_handle = #stablehlo.channel_handle<handle = 1005, type = 1>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> : (tensor<5000x1024xf32>) -> tensor<5000x1024xf32>
    %5 = "stablehlo.send"(%arg0, %arg2) <{channel_handle = #stablehlo.channel_handle<handle = 2000, type = 1>, is_host_transfer = false, source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>}> : (tensor<5000x1024xf32>, !stablehlo.token) -> !stablehlo.token
    %6:2 = "stablehlo.recv"(%5) <{channel_handle = #stablehlo.channel_handle<handle = 2001, type = 1>, is_host_transfer = false, source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>}> : (!stablehlo.token) -> (tensor<5000x1024xf32>, !stablehlo.token)
    "func.return"(%2, %3, %4, %6#0) : (tensor<2048x1024xf32>, tensor<?x1024xf32>, tensor<5000x1024xf32>, tensor<5000x1024xf32>) -> ()
  }) : () -> ()
}) : () -> ()

