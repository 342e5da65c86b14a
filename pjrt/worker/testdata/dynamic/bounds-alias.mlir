#b = #stablehlo.bounds<8, ?>
module { func.func public @main(%x: tensor<?x4xf32, #b>) -> tensor<?x4xf32, #b> { return %x : tensor<?x4xf32, #b> } }
