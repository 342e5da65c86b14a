module @m {
  func.func public @main(%x: tensor<8xf32>, %n: tensor<i32>) -> (tensor<8xf32>, tensor<?xf32, #stablehlo.bounds<8>>) {
    %o = "stablehlo.set_dimension_size"(%x, %n) {dimension = 0 : i64} : (tensor<8xf32>, tensor<i32>) -> tensor<?xf32, #stablehlo.bounds<8>>
    return %x, %o : tensor<8xf32>, tensor<?xf32, #stablehlo.bounds<8>>
  }
}
