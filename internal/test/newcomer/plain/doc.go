// Command plain is a plain GoMLX program. Only one of its imports belongs to this module.
package main
