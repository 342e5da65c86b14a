// Legal programs: each operation of StableHLO with each of its attributes, and dimensions of
// 1000 and more where it has any. legal_test.go reads them, in this form and in the generic one.

// ===== elementwise
func.func @main(%x: tensor<1000x1024xf32>, %y: tensor<1000x1024xf32>, %p: tensor<1000x1024xi1>, %i: tensor<1000x1024xi32>) -> (tensor<1000x1024xf32>, tensor<1000x1024xi32>) {
  %0 = stablehlo.abs %x : tensor<1000x1024xf32>
  %1 = stablehlo.add %0, %y : tensor<1000x1024xf32>
  %2 = stablehlo.atan2 %1, %y : tensor<1000x1024xf32>
  %3 = stablehlo.cbrt %2 {result_accuracy = #stablehlo.result_accuracy<mode = #stablehlo.result_accuracy_mode<DEFAULT>>} : tensor<1000x1024xf32>
  %4 = stablehlo.ceil %3 : tensor<1000x1024xf32>
  %5 = stablehlo.cosine %4 : tensor<1000x1024xf32>
  %6 = stablehlo.divide %5, %y : tensor<1000x1024xf32>
  %7 = stablehlo.exponential %6 : tensor<1000x1024xf32>
  %8 = stablehlo.exponential_minus_one %7 : tensor<1000x1024xf32>
  %9 = stablehlo.floor %8 : tensor<1000x1024xf32>
  %10 = stablehlo.log %9 : tensor<1000x1024xf32>
  %11 = stablehlo.log_plus_one %10 : tensor<1000x1024xf32>
  %12 = stablehlo.logistic %11 : tensor<1000x1024xf32>
  %13 = stablehlo.maximum %12, %y : tensor<1000x1024xf32>
  %14 = stablehlo.minimum %13, %y : tensor<1000x1024xf32>
  %15 = stablehlo.multiply %14, %y : tensor<1000x1024xf32>
  %16 = stablehlo.negate %15 : tensor<1000x1024xf32>
  %17 = stablehlo.power %16, %y : tensor<1000x1024xf32>
  %18 = stablehlo.remainder %17, %y : tensor<1000x1024xf32>
  %19 = stablehlo.round_nearest_afz %18 : tensor<1000x1024xf32>
  %20 = stablehlo.round_nearest_even %19 : tensor<1000x1024xf32>
  %21 = stablehlo.rsqrt %20 : tensor<1000x1024xf32>
  %22 = stablehlo.sign %21 : tensor<1000x1024xf32>
  %23 = stablehlo.sine %22 : tensor<1000x1024xf32>
  %24 = stablehlo.sqrt %23 : tensor<1000x1024xf32>
  %25 = stablehlo.subtract %24, %y : tensor<1000x1024xf32>
  %26 = stablehlo.tan %25 : tensor<1000x1024xf32>
  %27 = stablehlo.tanh %26 : tensor<1000x1024xf32>
  %28 = stablehlo.select %p, %27, %y : tensor<1000x1024xi1>, tensor<1000x1024xf32>
  %29 = stablehlo.clamp %y, %28, %x : tensor<1000x1024xf32>
  %30 = stablehlo.is_finite %29 : (tensor<1000x1024xf32>) -> tensor<1000x1024xi1>
  %31 = stablehlo.and %30, %p : tensor<1000x1024xi1>
  %32 = stablehlo.or %31, %p : tensor<1000x1024xi1>
  %33 = stablehlo.xor %32, %p : tensor<1000x1024xi1>
  %34 = stablehlo.not %33 : tensor<1000x1024xi1>
  %35 = stablehlo.select %34, %29, %x : tensor<1000x1024xi1>, tensor<1000x1024xf32>
  %36 = stablehlo.reduce_precision %35, format = e5m10 : tensor<1000x1024xf32>
  %37 = stablehlo.popcnt %i : tensor<1000x1024xi32>
  %38 = stablehlo.count_leading_zeros %37 : tensor<1000x1024xi32>
  %39 = stablehlo.shift_left %38, %i : tensor<1000x1024xi32>
  %40 = stablehlo.shift_right_arithmetic %39, %i : tensor<1000x1024xi32>
  %41 = stablehlo.shift_right_logical %40, %i : tensor<1000x1024xi32>
  %42 = stablehlo.divide %41, %i : tensor<1000x1024xi32>
  %43 = stablehlo.remainder %42, %i : tensor<1000x1024xi32>
  %44 = stablehlo.convert %36 : (tensor<1000x1024xf32>) -> tensor<1000x1024xi32>
  %45 = stablehlo.add %43, %44 : tensor<1000x1024xi32>
  return %36, %45 : tensor<1000x1024xf32>, tensor<1000x1024xi32>
}

// ===== comparisons
func.func @main(%x: tensor<2000xf32>, %i: tensor<2000xi32>, %u: tensor<2000xui8>, %p: tensor<2000xi1>) -> tensor<2000xi1> {
  %0 = stablehlo.compare EQ, %x, %x, FLOAT : (tensor<2000xf32>, tensor<2000xf32>) -> tensor<2000xi1>
  %1 = stablehlo.compare NE, %i, %i, SIGNED : (tensor<2000xi32>, tensor<2000xi32>) -> tensor<2000xi1>
  %2 = stablehlo.compare LE, %u, %u, UNSIGNED : (tensor<2000xui8>, tensor<2000xui8>) -> tensor<2000xi1>
  %3 = stablehlo.compare GE, %x, %x, TOTALORDER : (tensor<2000xf32>, tensor<2000xf32>) -> tensor<2000xi1>
  %4 = stablehlo.compare LT, %0, %1 : (tensor<2000xi1>, tensor<2000xi1>) -> tensor<2000xi1>
  %5 = stablehlo.compare GT, %2, %3 : (tensor<2000xi1>, tensor<2000xi1>) -> tensor<2000xi1>
  %6 = stablehlo.and %4, %5 : tensor<2000xi1>
  return %6 : tensor<2000xi1>
}

// ===== complex numbers
func.func @main(%x: tensor<1000xf32>, %y: tensor<1000xf32>) -> (tensor<1000xf32>, tensor<1000xf32>) {
  %0 = stablehlo.complex %x, %y : tensor<1000xcomplex<f32>>
  %1 = stablehlo.real %0 : (tensor<1000xcomplex<f32>>) -> tensor<1000xf32>
  %2 = stablehlo.imag %0 : (tensor<1000xcomplex<f32>>) -> tensor<1000xf32>
  %3 = stablehlo.abs %0 : (tensor<1000xcomplex<f32>>) -> tensor<1000xf32>
  %4 = stablehlo.add %2, %3 : tensor<1000xf32>
  return %1, %4 : tensor<1000xf32>, tensor<1000xf32>
}

// ===== constants and ids
#big = dense<9999999> : tensor<1000xi64>
func.func @main() -> (tensor<1000xi64>, tensor<4xf32>, tensor<2048x3xi32>, tensor<ui32>, tensor<2xi1>) {
  %0 = stablehlo.constant #big
  %1 = stablehlo.constant dense<[1.0, -2.5, 0x7F800000, 1.0e+30]> : tensor<4xf32>
  %2 = stablehlo.iota dim = 0 : tensor<2048x3xi32>
  %3 = stablehlo.replica_id : tensor<ui32>
  %4 = stablehlo.partition_id : tensor<ui32>
  %5 = stablehlo.add %3, %4 : tensor<ui32>
  %6 = stablehlo.constant dense<[true, false]> : tensor<2xi1>
  %7 = stablehlo.constant dense<"0x0000803F000000400000404000008040"> : tensor<4xf32>
  %8 = stablehlo.add %1, %7 : tensor<4xf32>
  return %0, %8, %2, %5, %6 : tensor<1000xi64>, tensor<4xf32>, tensor<2048x3xi32>, tensor<ui32>, tensor<2xi1>
}

// ===== shapes
func.func @main(%x: tensor<1000x8xf32>, %z: tensor<f32>, %s: tensor<i32>) -> (tensor<8x4x1000xf32>, tensor<1003x17xf32>, tensor<500x4xf32>, tensor<2000x8xf32>, tensor<1000x8xi32>, tensor<10x8xf32>, tensor<1000x8xf32>) {
  %0 = stablehlo.broadcast_in_dim %x, dims = [2, 0] : (tensor<1000x8xf32>) -> tensor<8x4x1000xf32>
  %1 = stablehlo.pad %x, %z, low = [1, -1], high = [2, 3], interior = [0, 1] : (tensor<1000x8xf32>, tensor<f32>) -> tensor<1003x17xf32>
  %2 = stablehlo.slice %x [0:1000:2, 4:8] : (tensor<1000x8xf32>) -> tensor<500x4xf32>
  %3 = stablehlo.concatenate %x, %x, dim = 0 : (tensor<1000x8xf32>, tensor<1000x8xf32>) -> tensor<2000x8xf32>
  %4 = stablehlo.bitcast_convert %x : (tensor<1000x8xf32>) -> tensor<1000x8xi32>
  %5 = stablehlo.dynamic_slice %x, %s, %s, sizes = [10, 8] : (tensor<1000x8xf32>, tensor<i32>, tensor<i32>) -> tensor<10x8xf32>
  %6 = stablehlo.dynamic_update_slice %x, %5, %s, %s : (tensor<1000x8xf32>, tensor<10x8xf32>, tensor<i32>, tensor<i32>) -> tensor<1000x8xf32>
  %7 = stablehlo.transpose %6, dims = [1, 0] : (tensor<1000x8xf32>) -> tensor<8x1000xf32>
  %8 = stablehlo.reverse %7, dims = [0, 1] : tensor<8x1000xf32>
  %9 = stablehlo.reshape %8 : (tensor<8x1000xf32>) -> tensor<1000x8xf32>
  return %0, %1, %2, %3, %4, %5, %9 : tensor<8x4x1000xf32>, tensor<1003x17xf32>, tensor<500x4xf32>, tensor<2000x8xf32>, tensor<1000x8xi32>, tensor<10x8xf32>, tensor<1000x8xf32>
}

// ===== products
func.func @main(%x: tensor<4x1024x2048xf32>, %y: tensor<4x2048x1000xf32>) -> tensor<4x1024x1000xf32> {
  %0 = stablehlo.dot_general %x, %y, batching_dims = [0] x [0], contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT], algorithm = <lhs_precision_type = f32, rhs_precision_type = f32, accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1, allow_imprecise_accumulation = false> : (tensor<4x1024x2048xf32>, tensor<4x2048x1000xf32>) -> tensor<4x1024x1000xf32>
  %1 = stablehlo.slice %x [0:1, 0:1024, 0:2048] : (tensor<4x1024x2048xf32>) -> tensor<1x1024x2048xf32>
  %2 = stablehlo.reshape %1 : (tensor<1x1024x2048xf32>) -> tensor<1024x2048xf32>
  %3 = stablehlo.transpose %2, dims = [1, 0] : (tensor<1024x2048xf32>) -> tensor<2048x1024xf32>
  %4 = stablehlo.dot %2, %3, precision = [DEFAULT, HIGH] : (tensor<1024x2048xf32>, tensor<2048x1024xf32>) -> tensor<1024x1024xf32>
  %5 = stablehlo.slice %4 [0:1024, 0:1000] : (tensor<1024x1024xf32>) -> tensor<1024x1000xf32>
  %6 = stablehlo.broadcast_in_dim %5, dims = [1, 2] : (tensor<1024x1000xf32>) -> tensor<4x1024x1000xf32>
  %7 = stablehlo.add %0, %6 : tensor<4x1024x1000xf32>
  return %7 : tensor<4x1024x1000xf32>
}

// ===== a convolution with all it can have
func.func @main(%x: tensor<2x1024x8x4xf32>, %k: tensor<3x3x2x2000xf32>) -> tensor<2x512x15x2000xf32> {
  %4393 = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [2, 1], pad = [[1, 1], [1, 1]], lhs_dilate = [1, 2], rhs_dilate = [1, 1], reverse = [false, true]} {batch_group_count = 1 : i64, feature_group_count = 2 : i64, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision DEFAULT>]} : (tensor<2x1024x8x4xf32>, tensor<3x3x2x2000xf32>) -> tensor<2x512x15x2000xf32>
  %4394 = stablehlo.add %4393, %4393 : tensor<2x512x15x2000xf32>
  return %4394 : tensor<2x512x15x2000xf32>
}

// ===== the gradient of a convolution
func.func @main(%x: tensor<2x224x224x3xf32>, %k: tensor<2x218x218x64xf32>) -> tensor<7x7x3x64xf32> {
  %0 = stablehlo.convolution(%x, %k) dim_numbers = [f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f], window = {rhs_dilate = [1, 1]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x224x224x3xf32>, tensor<2x218x218x64xf32>) -> tensor<7x7x3x64xf32>
  return %0 : tensor<7x7x3x64xf32>
}

// ===== gathers and scatters
func.func @main(%x: tensor<50257x1024xf32>, %i: tensor<2048x1xi32>, %u: tensor<2048x1024xf32>) -> (tensor<2048x1024xf32>, tensor<50257x1024xf32>, tensor<50257x1024xf32>) {
  %0 = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 1024>}> : (tensor<50257x1024xf32>, tensor<2048x1xi32>) -> tensor<2048x1024xf32>
  %1 = "stablehlo.scatter"(%x, %i, %u) <{indices_are_sorted = true, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = true}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %9 = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %9 : tensor<f32>
  }) : (tensor<50257x1024xf32>, tensor<2048x1xi32>, tensor<2048x1024xf32>) -> tensor<50257x1024xf32>
  return %0, %1, %x : tensor<2048x1024xf32>, tensor<50257x1024xf32>, tensor<50257x1024xf32>
}

// ===== reductions
func.func @main(%x: tensor<1000x1024xf32>, %z: tensor<f32>, %i: tensor<1000x1024xi32>, %zi: tensor<i32>) -> (tensor<1024xf32>, tensor<1000xf32>, tensor<1000xi32>) {
  %0 = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0] : (tensor<1000x1024xf32>, tensor<f32>) -> tensor<1024xf32>
  %1:2 = stablehlo.reduce(%x init: %z), (%i init: %zi) across dimensions = [1] : (tensor<1000x1024xf32>, tensor<1000x1024xi32>, tensor<f32>, tensor<i32>) -> (tensor<1000xf32>, tensor<1000xi32>)
   reducer(%a: tensor<f32>, %b: tensor<f32>) (%c: tensor<i32>, %d: tensor<i32>) {
    %2 = stablehlo.compare GE, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %3 = stablehlo.select %2, %a, %b : tensor<i1>, tensor<f32>
    %4 = stablehlo.select %2, %c, %d : tensor<i1>, tensor<i32>
    stablehlo.return %3, %4 : tensor<f32>, tensor<i32>
  }
  return %0, %1#0, %1#1 : tensor<1024xf32>, tensor<1000xf32>, tensor<1000xi32>
}

// ===== windows
func.func @main(%x: tensor<2x1024x1000xf32>, %z: tensor<f32>, %s: tensor<2x512x1000xf32>) -> (tensor<2x1024x1000xf32>, tensor<2x1024x1000xf32>) {
  %0 = "stablehlo.reduce_window"(%x, %z) <{base_dilations = array<i64: 1, 1, 1>, padding = dense<[[0, 0], [1, 1], [0, 0]]> : tensor<3x2xi64>, window_dilations = array<i64: 1, 1, 1>, window_dimensions = array<i64: 1, 3, 1>, window_strides = array<i64: 1, 1, 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %9 = stablehlo.maximum %a, %b : tensor<f32>
    stablehlo.return %9 : tensor<f32>
  }) : (tensor<2x1024x1000xf32>, tensor<f32>) -> tensor<2x1024x1000xf32>
  %1 = "stablehlo.select_and_scatter"(%x, %s, %z) <{padding = dense<0> : tensor<3x2xi64>, window_dimensions = array<i64: 1, 2, 1>, window_strides = array<i64: 1, 2, 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %9 = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %9 : tensor<i1>
  }, {
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %9 = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %9 : tensor<f32>
  }) : (tensor<2x1024x1000xf32>, tensor<2x512x1000xf32>, tensor<f32>) -> tensor<2x1024x1000xf32>
  return %0, %1 : tensor<2x1024x1000xf32>, tensor<2x1024x1000xf32>
}

// ===== sorts and maps
func.func @main(%x: tensor<1000xf32>, %i: tensor<1000xi32>) -> (tensor<1000xf32>, tensor<1000xi32>, tensor<1000xf32>) {
  %0:2 = "stablehlo.sort"(%x, %i) <{dimension = 0 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<i32>):
    %9 = stablehlo.compare LE, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %9 : tensor<i1>
  }) : (tensor<1000xf32>, tensor<1000xi32>) -> (tensor<1000xf32>, tensor<1000xi32>)
  %1 = "stablehlo.map"(%x, %x) <{dimensions = array<i64: 0>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %9 = stablehlo.multiply %a, %b : tensor<f32>
    stablehlo.return %9 : tensor<f32>
  }) : (tensor<1000xf32>, tensor<1000xf32>) -> tensor<1000xf32>
  %2 = "stablehlo.sort"(%1) <{dimension = 0 : i64, is_stable = false}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %9 = stablehlo.compare GT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %9 : tensor<i1>
  }) : (tensor<1000xf32>) -> tensor<1000xf32>
  return %0#0, %0#1, %2 : tensor<1000xf32>, tensor<1000xi32>, tensor<1000xf32>
}

// ===== control flow
func.func @main(%x: tensor<1000x8xf32>, %p: tensor<i1>, %i: tensor<i32>) -> (tensor<1000x8xf32>, tensor<1000x8xf32>, tensor<i32>) {
  %one = stablehlo.constant dense<1> : tensor<i32>
  %ten = stablehlo.constant dense<10> : tensor<i32>
  %0 = "stablehlo.if"(%p) ({
    stablehlo.return %x : tensor<1000x8xf32>
  }, {
    %9 = stablehlo.negate %x : tensor<1000x8xf32>
    stablehlo.return %9 : tensor<1000x8xf32>
  }) : (tensor<i1>) -> tensor<1000x8xf32>
  %1 = "stablehlo.case"(%i) ({
    stablehlo.return %x : tensor<1000x8xf32>
  }, {
    stablehlo.return %0 : tensor<1000x8xf32>
  }, {
    %9 = stablehlo.abs %x : tensor<1000x8xf32>
    stablehlo.return %9 : tensor<1000x8xf32>
  }) : (tensor<i32>) -> tensor<1000x8xf32>
  %2:2 = stablehlo.while(%iterArg = %i, %iterArg_0 = %1) : tensor<i32>, tensor<1000x8xf32> attributes {mhlo.frontend_attributes = {a = "b"}}
   cond {
    %9 = stablehlo.compare LT, %iterArg, %ten, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %9 : tensor<i1>
  } do {
    %9 = stablehlo.add %iterArg, %one : tensor<i32>
    %10 = stablehlo.divide %ten, %9 : tensor<i32>
    %11 = stablehlo.remainder %10, %ten : tensor<i32>
    %12 = stablehlo.add %11, %9 : tensor<i32>
    %13 = func.call @twice(%iterArg_0) : (tensor<1000x8xf32>) -> tensor<1000x8xf32>
    stablehlo.return %12, %13 : tensor<i32>, tensor<1000x8xf32>
  }
  return %0, %2#1, %2#0 : tensor<1000x8xf32>, tensor<1000x8xf32>, tensor<i32>
}
func.func private @twice(%x: tensor<1000x8xf32>) -> tensor<1000x8xf32> {
  %0 = stablehlo.add %x, %x : tensor<1000x8xf32>
  return %0 : tensor<1000x8xf32>
}

// ===== linear algebra
func.func @main(%a: tensor<2x16x16xf32>, %b: tensor<2x16x1000xf32>) -> (tensor<2x16x16xf32>, tensor<2x16x1000xf32>) {
  %0 = stablehlo.cholesky %a, lower = true : tensor<2x16x16xf32>
  %1 = "stablehlo.triangular_solve"(%0, %b) <{left_side = true, lower = true, transpose_a = #stablehlo<transpose NO_TRANSPOSE>, unit_diagonal = false}> : (tensor<2x16x16xf32>, tensor<2x16x1000xf32>) -> tensor<2x16x1000xf32>
  return %0, %1 : tensor<2x16x16xf32>, tensor<2x16x1000xf32>
}

// ===== transforms
func.func @main(%x: tensor<2x1000xf32>) -> tensor<2x1000xf32> {
  %0 = stablehlo.fft %x, type = RFFT, length = [1000] : (tensor<2x1000xf32>) -> tensor<2x501xcomplex<f32>>
  %1 = stablehlo.fft %0, type = FFT, length = [501] : (tensor<2x501xcomplex<f32>>) -> tensor<2x501xcomplex<f32>>
  %2 = stablehlo.fft %1, type = IFFT, length = [501] : (tensor<2x501xcomplex<f32>>) -> tensor<2x501xcomplex<f32>>
  %3 = stablehlo.fft %2, type = IRFFT, length = [1000] : (tensor<2x501xcomplex<f32>>) -> tensor<2x1000xf32>
  return %3 : tensor<2x1000xf32>
}

// ===== random numbers
func.func @main(%s: tensor<2xui64>, %a: tensor<f32>) -> (tensor<2xui64>, tensor<1000x1024xui32>, tensor<1000xf32>, tensor<1000xf32>) {
  %0, %1 = stablehlo.rng_bit_generator %s, algorithm = THREE_FRY : (tensor<2xui64>) -> (tensor<2xui64>, tensor<1000x1024xui32>)
  %shape = stablehlo.constant dense<1000> : tensor<1xi64>
  %2 = stablehlo.rng %a, %a, %shape, distribution = UNIFORM : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<1000xf32>
  %3 = stablehlo.rng %a, %a, %shape, distribution = NORMAL : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<1000xf32>
  return %0, %1, %2, %3 : tensor<2xui64>, tensor<1000x1024xui32>, tensor<1000xf32>, tensor<1000xf32>
}

// ===== batch normalization
func.func @main(%x: tensor<8x32x1000xf32>, %s: tensor<1000xf32>) -> (tensor<8x32x1000xf32>, tensor<8x32x1000xf32>, tensor<8x32x1000xf32>) {
  %0:3 = "stablehlo.batch_norm_training"(%x, %s, %s) <{epsilon = 1.000000e-03 : f32, feature_index = 2 : i64}> : (tensor<8x32x1000xf32>, tensor<1000xf32>, tensor<1000xf32>) -> (tensor<8x32x1000xf32>, tensor<1000xf32>, tensor<1000xf32>)
  %1 = "stablehlo.batch_norm_inference"(%x, %s, %s, %0#1, %0#2) <{epsilon = 1.000000e-03 : f32, feature_index = 2 : i64}> : (tensor<8x32x1000xf32>, tensor<1000xf32>, tensor<1000xf32>, tensor<1000xf32>, tensor<1000xf32>) -> tensor<8x32x1000xf32>
  %2:3 = "stablehlo.batch_norm_grad"(%x, %s, %0#1, %0#2, %1) <{epsilon = 1.000000e-03 : f32, feature_index = 2 : i64}> : (tensor<8x32x1000xf32>, tensor<1000xf32>, tensor<1000xf32>, tensor<1000xf32>, tensor<8x32x1000xf32>) -> (tensor<8x32x1000xf32>, tensor<1000xf32>, tensor<1000xf32>)
  return %0#0, %1, %2#0 : tensor<8x32x1000xf32>, tensor<8x32x1000xf32>, tensor<8x32x1000xf32>
}

// ===== collectives (2 partitions)
func.func @main(%x: tensor<8x1000xf32>) -> (tensor<8x1000xf32>, tensor<16x1000xf32>, tensor<4x1000xf32>, tensor<8x1000xf32>, tensor<8x1000xf32>) {
  %0 = "stablehlo.all_reduce"(%x) <{channel_handle = #stablehlo.channel_handle<handle = 1000, type = 1>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %9 = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %9 : tensor<f32>
  }) : (tensor<8x1000xf32>) -> tensor<8x1000xf32>
  %1 = "stablehlo.all_gather"(%x) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1001, type = 1>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> : (tensor<8x1000xf32>) -> tensor<16x1000xf32>
  %2 = "stablehlo.reduce_scatter"(%x) <{channel_handle = #stablehlo.channel_handle<handle = 1002, type = 1>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, scatter_dimension = 0 : i64, use_global_device_ids}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %9 = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %9 : tensor<f32>
  }) : (tensor<8x1000xf32>) -> tensor<4x1000xf32>
  %3 = "stablehlo.all_to_all"(%x) <{channel_handle = #stablehlo.channel_handle<handle = 1003, type = 1>, concat_dimension = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, split_count = 2 : i64, split_dimension = 0 : i64}> : (tensor<8x1000xf32>) -> tensor<8x1000xf32>
  %4 = "stablehlo.collective_permute"(%x) <{channel_handle = #stablehlo.channel_handle<handle = 1004, type = 1>, source_target_pairs = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>}> : (tensor<8x1000xf32>) -> tensor<8x1000xf32>
  return %0, %1, %2, %3, %4 : tensor<8x1000xf32>, tensor<16x1000xf32>, tensor<4x1000xf32>, tensor<8x1000xf32>, tensor<8x1000xf32>
}

// ===== tokens, barriers, tuples
func.func @main(%x: tensor<1000xf32>, %y: tensor<1000xf32>) -> (tensor<1000xf32>, tensor<1000xf32>) {
  %t = stablehlo.create_token : !stablehlo.token
  %u = stablehlo.after_all %t, %t : !stablehlo.token
  %0:2 = stablehlo.optimization_barrier %x, %y : tensor<1000xf32>, tensor<1000xf32>
  %1 = stablehlo.tuple %0#0, %0#1 : tuple<tensor<1000xf32>, tensor<1000xf32>>
  %2 = stablehlo.get_tuple_element %1[1] : (tuple<tensor<1000xf32>, tensor<1000xf32>>) -> tensor<1000xf32>
  return %2, %0#0 : tensor<1000xf32>, tensor<1000xf32>
}

// ===== custom calls and composites on the host
func.func @main(%x: tensor<1000xf32>) -> (tensor<10xf32>, tensor<10xi32>, tensor<1000xf32>) {
  %0:2 = stablehlo.custom_call @TopK(%x) {backend_config = "", called_computations = [], mhlo.attributes = {k = 10 : i64}, jax.name = "{devices=[9999]"} : (tensor<1000xf32>) -> (tensor<10xf32>, tensor<10xi32>)
  %1 = stablehlo.composite "my.op" %x {composite_attributes = {dimension_numbers = [99999], note = "{manual}"}, decomposition = @decomposition, version = 1 : i32} : (tensor<1000xf32>) -> tensor<1000xf32>
  return %0#0, %0#1, %1 : tensor<10xf32>, tensor<10xi32>, tensor<1000xf32>
}
func.func private @decomposition(%x: tensor<1000xf32>) -> tensor<1000xf32> {
  %0 = stablehlo.tanh %x : tensor<1000xf32>
  return %0 : tensor<1000xf32>
}

// ===== chlo
func.func @main(%x: tensor<1000xf32>, %y: tensor<f32>) -> (tensor<1000xf32>, tensor<10xf32>, tensor<10xi32>) {
  %0 = chlo.broadcast_add %x, %y {broadcast_dimensions = array<i64>} : (tensor<1000xf32>, tensor<f32>) -> tensor<1000xf32>
  %1 = chlo.erf %0 : tensor<1000xf32> -> tensor<1000xf32>
  %2 = chlo.erf_inv %1 : tensor<1000xf32> -> tensor<1000xf32>
  %3 = chlo.lgamma %2 : tensor<1000xf32> -> tensor<1000xf32>
  %values, %indices = chlo.top_k(%3, k = 10) : tensor<1000xf32> -> (tensor<10xf32>, tensor<10xi32>)
  return %3, %values, %indices : tensor<1000xf32>, tensor<10xf32>, tensor<10xi32>
}

// ===== bounded sizes within
func.func @main(%x: tensor<1000xf32>, %n: tensor<i32>) -> tensor<i32> {
  %0 = stablehlo.set_dimension_size %x, %n, dim = 0 : (tensor<1000xf32>, tensor<i32>) -> tensor<?xf32, #stablehlo.bounds<1000>>
  %1 = stablehlo.get_dimension_size %0, dim = 0 : (tensor<?xf32, #stablehlo.bounds<1000>>) -> tensor<i32>
  return %1 : tensor<i32>
}

// ===== shapes by operands
func.func @main(%x: tensor<1000xf32>, %z: tensor<f32>) -> (tensor<1000xf32>, tensor<2x1000xf32>, tensor<1002xf32>) {
  %shape = stablehlo.constant dense<[1000]> : tensor<1xi32>
  %both = stablehlo.constant dense<[2, 1000]> : tensor<2xi32>
  %one = stablehlo.constant dense<1> : tensor<1xi32>
  %nil = stablehlo.constant dense<0> : tensor<1xi32>
  %0 = stablehlo.dynamic_reshape %x, %shape : (tensor<1000xf32>, tensor<1xi32>) -> tensor<1000xf32>
  %1 = stablehlo.dynamic_broadcast_in_dim %x, %both, dims = [1] : (tensor<1000xf32>, tensor<2xi32>) -> tensor<2x1000xf32>
  %2 = stablehlo.dynamic_pad %x, %z, %one, %one, %nil : (tensor<1000xf32>, tensor<f32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<1002xf32>
  %3 = stablehlo.dynamic_iota %shape, dim = 0 : (tensor<1xi32>) -> tensor<1000xf32>
  %4 = stablehlo.add %0, %3 : tensor<1000xf32>
  return %4, %1, %2 : tensor<1000xf32>, tensor<2x1000xf32>, tensor<1002xf32>
}

// ===== Shardy (2 partitions)
sdy.mesh @mesh = <["data"=2]>
func.func @main(%x: tensor<2000x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>}) -> (tensor<2000x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {?}]>}, tensor<2000x8xf32>) {
  %0 = sdy.sharding_constraint %x <@mesh, [{"data", ?}, {}]> : tensor<2000x8xf32>
  %1 = sdy.manual_computation(%0) in_shardings=[<@mesh, [{"data"}, {}]>] out_shardings=[<@mesh, [{"data"}, {}]>] manual_axes={"data"} (%arg: tensor<1000x8xf32>) {
    %9 = stablehlo.tanh %arg : tensor<1000x8xf32>
    sdy.return %9 : tensor<1000x8xf32>
  } : (tensor<2000x8xf32>) -> tensor<2000x8xf32>
  %2 = stablehlo.add %1, %1 {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"data"}, {}]>]>} : tensor<2000x8xf32>
  sdy.sharding_group %2 group_id=1000 : tensor<2000x8xf32>
  return %1, %2 : tensor<2000x8xf32>, tensor<2000x8xf32>
}

// ===== GSPMD (2 partitions)
func.func @main(%x: tensor<2000x8xf32> {mhlo.sharding = "{devices=[2,1]<=[2]}", jax.arg_info = "{unknown}"}) -> (tensor<2000x8xf32> {mhlo.sharding = "{replicated}"}) {
  %0 = stablehlo.custom_call @Sharding(%x) {mhlo.sharding = "{devices=[1,2]<=[2]}"} : (tensor<2000x8xf32>) -> tensor<2000x8xf32>
  %1 = stablehlo.add %0, %0 {mhlo.sharding = "{devices=[2,1]0,1}"} : tensor<2000x8xf32>
  return %1 : tensor<2000x8xf32>
}

// ===== attributes named like others, texts, locations
module @m attributes {mhlo.note = "mhlo.input_output_alias = [stablehlo.infeed({devices=[0]<=[0]})]"} {
  func.func @main(%x: tensor<1000xf32> {jax.buffer_donor = true, a.dimension_numbers = 123456}, %lhs_dilate: tensor<1000xf32> {tf.aliasing_output = 1 : i32}) -> (tensor<1000xf32> {jax.result_info = "{manual} tensor<99999999999999999999xf32>"}, tensor<1000xf32>) {
    %stablehlo.infeed = stablehlo.add %x, %lhs_dilate {b.lhs_dilation = 99999999999, c.padding = [[9223372036854775807]], d.dim_numbers = "[b, 9999999]"} : tensor<1000xf32> loc("stablehlo.outfeed"("{unknown}"))
    %mhlo.sharding = stablehlo.multiply %stablehlo.infeed, %x {mhlo.frontend_attributes = {k = "xla.sdy.meshes", dimension_numbers = "99999"}} : tensor<1000xf32> loc(callsite("a" at "b":1000:2000))
    return %mhlo.sharding, %stablehlo.infeed : tensor<1000xf32>, tensor<1000xf32>
  }
}

// ===== what the CPU plugin has not (2 partitions)
func.func @main(%x: tensor<5000x1024xf32>, %i: tensor<2048x1xi32>, %t: !stablehlo.token) -> (tensor<2048x1024xf32>, tensor<?x1024xf32>, tensor<5000x1024xf32>, tensor<5000x1024xf32>) {
  %sizes = stablehlo.constant dense<[1, 1024]> : tensor<2xi32>
  %nil = stablehlo.constant dense<0> : tensor<2xi32>
  %0 = "stablehlo.dynamic_gather"(%x, %i, %sizes) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>}> : (tensor<5000x1024xf32>, tensor<2048x1xi32>, tensor<2xi32>) -> tensor<2048x1024xf32>
  %1 = stablehlo.real_dynamic_slice %x, %nil, %sizes, %sizes : (tensor<5000x1024xf32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> tensor<?x1024xf32>
  %2 = "stablehlo.collective_broadcast"(%x) <{channel_handle = #stablehlo.channel_handle<handle = 1005, type = 1>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> : (tensor<5000x1024xf32>) -> tensor<5000x1024xf32>
  %5 = "stablehlo.send"(%x, %t) <{channel_handle = #stablehlo.channel_handle<handle = 2000, type = 1>, is_host_transfer = false, source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>}> : (tensor<5000x1024xf32>, !stablehlo.token) -> !stablehlo.token
  %6:2 = "stablehlo.recv"(%5) <{channel_handle = #stablehlo.channel_handle<handle = 2001, type = 1>, is_host_transfer = false, source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>}> : (!stablehlo.token) -> (tensor<5000x1024xf32>, !stablehlo.token)
  return %0, %1, %2, %6#0 : tensor<2048x1024xf32>, tensor<?x1024xf32>, tensor<5000x1024xf32>, tensor<5000x1024xf32>
}
