module @m {
  func.func public @main(%x: tensor<8xf32>, %s: tensor<2xi32>) -> (tensor<?x?xf32>) {
    %o = stablehlo.dynamic_reshape %x, %s : (tensor<8xf32>, tensor<2xi32>) -> tensor<?x?xf32>
    return %o : tensor<?x?xf32>
  }
}
