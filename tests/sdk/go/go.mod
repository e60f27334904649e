module once.example/tests

go 1.19

require once.example/once v0.1.0

replace once.example/once => ../../../sdk/go
