package main

func Example() {
	main()
	// Output: fitted: true on 4 replicas
}
