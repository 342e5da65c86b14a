module @m {
  func.func public @main(%x: tensor<?xf32, #stablehlo.bounds<8>>) -> (tensor<?xf32, #stablehlo.bounds<8>>) {
    return %x : tensor<?xf32, #stablehlo.bounds<8>>
  }
}
