module @m {
  func.func public @main(%x: tensor<?xf32>) -> (tensor<?xf32>) {
    return %x : tensor<?xf32>
  }
}
