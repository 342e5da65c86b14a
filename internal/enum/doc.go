// Package enum implements the String methods of constants.
package enum
