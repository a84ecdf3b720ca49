package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

// runEtcd serves the store that kube-apiserver keeps its objects in.
func runEtcd() {
	etcdmain.Main(os.Args)
}
