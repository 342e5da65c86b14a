module @m {
  func.func public @main(%x: tensor<8x4xf32>, %n: tensor<i32>) -> (tensor<?x4xf32, #stablehlo.bounds<8, ?>>) {
    %y = "stablehlo.set_dimension_size"(%x, %n) {dimension = 0 : i64} : (tensor<8x4xf32>, tensor<i32>) -> tensor<?x4xf32, #stablehlo.bounds<8, ?>>
    %o = stablehlo.add %y, %y : tensor<?x4xf32, #stablehlo.bounds<8, ?>>
    return %o : tensor<?x4xf32, #stablehlo.bounds<8, ?>>
  }
}
